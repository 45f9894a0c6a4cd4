# Time per output token by KV layout, with intervals; one kind of point per set of cells that differ in layout alone.
set terminal svg size 900,440
set xlabel 'KV layout (paged: tokens a page)'
set ylabel 'time per output token, median (ms)'
set xrange [0.4:n_layouts + 0.6]
set xtics ()
do for [i = 1:n_layouts] { set xtics add (layouts[i] i) }
set offsets 0, 0, graph 0.12, graph 0.12
set key outside bottom center horizontal Left reverse samplen 2 maxcols 2
at(i, x) = x + (i - (n_title + 1) / 2.) * 0.14
plot for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):4:5:6 with yerrorbars lc rgb colour(i) pt shape(i) ps 1.1 lw 1.6 title title[i]
