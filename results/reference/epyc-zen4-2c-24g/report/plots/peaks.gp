# Run in this folder: gnuplot peaks.gp reads ../data/peaks.tsv and writes peaks.svg
name = 'peaks'
height = 360
n_title = 2
array title[2] = ['1 thread', '2 threads']
n_units = 3
array units[3] = ['fp32', 'bf16', 'int8']

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

# Peak arithmetic rate by unit, one bar per number of threads.
set style fill solid 0.85 border lc rgb '#333333'
set ylabel 'peak (GFLOP/s; int8: GOP/s)'
stats data using 4 nooutput
set yrange [0:STATS_max * 1.18]
set xrange [0.4:n_units + 0.6]
set xtics ()
do for [i = 1:n_units] { set xtics add (units[i] i) }
set grid noxtics
set key outside top right vertical Left reverse samplen 2
w = 0.7 / n_title
at(i, x) = x + (i - (n_title + 1) / 2.) * w
lo(i) = column(5) == column(5) ? column(5) : column(4)
hi(i) = column(6) == column(6) ? column(6) : column(4)
plot for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):4:(w * 0.92) with boxes fs solid (i == 1 ? 0.45 : 0.9) lc rgb colour(i + 1) title title[i], \
     for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):(lo(i)):(0):(hi(i) - lo(i)) with vectors arrowstyle 1 notitle, \
     for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):(hi(i)):(sprintf('%.0f', $4)) with labels offset 0, 0.7 font ',11' notitle
