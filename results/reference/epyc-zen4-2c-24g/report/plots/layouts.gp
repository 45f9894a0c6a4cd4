# Run in this folder: gnuplot layouts.gp reads ../data/layouts.tsv and writes layouts.svg
name = 'layouts'
height = 420
n_title = 1
array title[1] = ['smollm2-135m bf16, tg16 @ d1024']
n_layouts = 5
array layouts[5] = ['head', 'token', 'block', 'paged:16', 'zorder']

# What all plots share. name, height, title[], n_title and the settings of the plot are set above.
set encoding utf8
set terminal svg noenhanced size 900,height dynamic background '#ffffff' font 'DejaVu Sans,13' linewidth 1 dashlength 1
set output name.'.svg'
data = '../data/'.name.'.tsv'
set datafile separator tab
set datafile missing 'NaN'
set key autotitle columnhead
unset key
set pointintervalbox 0
# Told apart by colour (safe for the colour-blind), by lightness, by dashes and by shape of the points.
colour(i) = word('#1b1b1b #d55e00 #0072b2 #e69f00 #009e73 #b3569b #56b4e9 #7a4a12 #707070 #a8a800', (i - 1) % 10 + 1)
dash(i) = int(word('1 2 4 5 3 1 2 4 5 3', (i - 1) % 10 + 1))
shape(i) = int(word('7 5 9 13 11 6 4 8 12 10', (i - 1) % 10 + 1))
filled(i) = int(word('7 5 9 13 11 15 2 3', (i - 1) % 8 + 1))
hollow(i) = int(word('6 4 8 12 10 14 1 3', (i - 1) % 8 + 1))
# Intervals are vectors from x, lo over hi - lo, so that they lie over bars and points alike.
set style arrow 1 heads size screen 0.005, 90 lc rgb '#000000' lw 1.2
cap = 0.005
set border 3 lc rgb '#555555'
set tics nomirror out scale 0.6 textcolor rgb '#222222'
set grid back lc rgb '#e0e3e7' lt 1 lw 0.7

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
