# Time per output token by KV layout, with intervals; one kind of point per set of cells that differ in layout alone.
set xlabel 'KV layout (paged: tokens a page)'
set ylabel 'time per output token, median (ms)'
set xrange [0.4:n_layouts + 0.6]
set xtics ()
do for [i = 1:n_layouts] { set xtics add (layouts[i] i) }
set offsets 0, 0, graph 0.12, graph 0.12
set key tmargin left horizontal Left reverse samplen 2 maxcols 2
at(i, x) = x + (i - (n_title + 1) / 2.) * 0.14
plot for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):5:(0):($6 - $5) with vectors heads size screen cap, 90 lc rgb colour(i) lw 1.6 notitle, \
     for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):4 with points lc rgb colour(i) pt shape(i) ps 1.2 lw 1.6 title title[i]
