# A time in ms against one axis, one line per set of cells that differ in that axis alone; bars are intervals.
x_label = x_name eq 'isl' ? 'input length (tokens)' : x_name eq 'n_seqs' ? 'sequences decoded together' : 'context depth (tokens already present)'
set xlabel x_label
set ylabel (name eq 'ttft' ? 'time to first token, median (ms)' : 'time per output token, median (ms)')
set key outside bottom center horizontal Left reverse samplen 3.5 maxcols 2
if (log_x) { set logscale x 2 }
if (log_y) { set logscale y 10 }
set xtics () font ',12'
do for [i = 1:n_xs] { set xtics add (sprintf('%.0f', xs[i]) xs[i]) }
set format y '%g'
if (!log_y) { set yrange [0:*] }
set offsets graph 0.03, graph 0.03, graph 0.05, 0
plot for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4 with linespoints lc rgb colour(i) dt dash(i) pt shape(i) ps 0.9 lw 2 title title[i], \
     for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4:5:6 with yerrorbars lc rgb colour(i) pt -1 lw 1.3 notitle
