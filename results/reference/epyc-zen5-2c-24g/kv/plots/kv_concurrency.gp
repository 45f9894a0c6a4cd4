# Run in this folder: gnuplot kv_concurrency.gp reads ../data/kv_concurrency.tsv and writes kv_concurrency.svg
name = 'kv_concurrency'
height = 440
n_title = 3
array title[3] = ['pool, compact every 10', 'paged', 'hybrid < 64, compact every 10']
n_xs = 7
array xs[7] = [1., 10., 25., 50., 100., 150., 200.]

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
