# Run in this folder: gnuplot mbu.gp reads ../data/mbu.tsv and writes mbu.svg
name = 'mbu'
height = 400
n_title = 2
array title[2] = ['llama-3.2-1b', 'smollm2-135m']
n_labels = 5
array labels[5] = ['bf16', 'int8', 'int4', 'bf16', 'int8']

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

# MBU of decode, one bar per model and quantization.
set ylabel 'MBU (% of read bandwidth)'
stats data using 4 nooutput
top = STATS_max * 1.15 + 5
set yrange [0:top]
set xrange [0.3:n_labels + 0.7]
set xtics ()
do for [i = 1:n_labels] { set xtics add (labels[i] i) }
set grid noxtics
if (top > 100) { set arrow 1 from graph 0, first 100 to graph 1, first 100 nohead dt 2 lc rgb '#777777' back }
set key tmargin left horizontal Left reverse samplen 2 maxcols 2
plot for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4:(0.62) with boxes fs solid (0.9 - 0.3 * ((i - 1) % 3)) lc rgb colour(i + 1) title title[i], \
     data using 3:5:(0):($6 - $5) with vectors arrowstyle 1 notitle, \
     data using 3:($6 == $6 ? $6 : $4):(sprintf('%.0f %%', $4)) with labels offset 0, 0.7 font (n_labels > 8 ? ',10' : ',12') notitle
