# Run in this folder: gnuplot ops_prefill.gp reads ../data/ops_prefill.tsv and writes ops_prefill.svg
name = 'ops_prefill'
height = 420
n_title = 1
array title[1] = ['llama-3.2-1b bf16, pp128']
n_labels = 10
array labels[10] = ['gate_up', 'down', 'qkv', 'out', 'head', 'attention', 'norm', 'rope', 'kv_append', 'embed']

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

# Time by op class: the part that the ceilings ask for, and what is above it.
set ylabel (name eq 'ops_prefill' ? 'time in a prefill (ms)' : 'time in a decode step (ms)')
stats data using 4 nooutput
set yrange [0:STATS_max * 1.15]
set xrange [0.3:n_labels + 0.7]
set xtics ()
do for [i = 1:n_labels] { set xtics add (labels[i] i) }
set xtics rotate by -30 left
set grid noxtics
set key inside top right vertical Left reverse samplen 2
plot data using 3:4:(0.7) with boxes fs pattern 4 lc rgb '#d55e00' title 'above its roof time', \
     data using 3:7:(0.7) with boxes fs solid 1 lc rgb '#0072b2' title 'roof time', \
     data using 3:4:(sprintf($8 < 0.1 ? '< 0.1 %%' : $8 < 9.95 ? '%.1f %%' : '%.0f %%', $8)) with labels offset 0, 0.7 font ',11' notitle
