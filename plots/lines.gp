# A time in ms against one axis, one line per set of cells that differ in that axis alone; bars are intervals.
set xlabel (name eq 'ttft' ? 'input length (tokens)' : name eq 'tpot_batch' ? 'sequences decoded together' : 'context depth (tokens already present)')
set ylabel (name eq 'ttft' ? 'time to first token, median (ms)' : 'time per output token, median (ms)')
set key tmargin left horizontal Left reverse samplen 4 maxcols 2
stats data using 5 nooutput
low = STATS_min
stats data using 6 nooutput
high = STATS_max
if (log_x) { set logscale x 2 }
if (log_y) { set logscale y 10 }
set yrange [(log_y ? low / 1.4 : 0):(log_y ? high * 1.4 : high * 1.08)]
set xtics ()
do for [i = 1:n_xs] { set xtics add (sprintf('%.0f', xs[i]) xs[i]) }
set format y '%g'
# a log axis of less than two decades has too few powers of ten to read from: 1, 2, 5 are labelled as well
if (log_y && high / low < 100) {
    set ytics ()
    do for [p = floor(log10(low)) - 1:ceil(log10(high)) + 1] {
        do for [m in '1 2 5'] { set ytics add (sprintf('%g', m * 10.0 ** p) m * 10.0 ** p) }
    }
}
set offsets graph 0.03, graph 0.03, 0, 0
plot for [i = 1:n_title] data using ($1 == i ? $3 : NaN):5:(0):($6 - $5) with vectors heads size screen cap, 90 lc rgb colour(i) lw 1.3 notitle, \
     for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4 with linespoints lc rgb colour(i) dt dash(i) pt shape(i) ps 0.9 lw 2 title title[i]
