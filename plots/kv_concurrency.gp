# Requests a second against requests at once, in one memory; one line per allocator.
set xlabel 'requests at once'
set ylabel 'requests a second'
stats data using ($6 == $6 ? $6 : $4) nooutput
set yrange [0:STATS_max * 1.08]
set logscale x 10
set xtics ()
do for [i = 1:n_xs] { set xtics add (sprintf('%.0f', xs[i]) xs[i]) }
set offsets graph 0.03, graph 0.03, 0, 0
set key tmargin left horizontal Left reverse samplen 4 maxcols 2
plot for [i = 1:n_title] data using ($1 == i && $5 == $5 && $6 == $6 ? $3 : NaN):5:(0):($6 - $5) with vectors heads size screen cap, 90 lc rgb colour(i) lw 1.3 notitle, \
     for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4 with linespoints lc rgb colour(i) dt dash(i) pt shape(i) ps 0.9 lw 2 title title[i]
