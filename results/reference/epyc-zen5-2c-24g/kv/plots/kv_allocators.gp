# Run in this folder: gnuplot kv_allocators.gp reads ../data/kv_allocators.tsv and writes kv_allocators.svg
name = 'kv_allocators'
height = 420
n_title = 3
array title[3] = ['KV memory 25 % of the demand', 'KV memory 50 % of the demand', 'KV memory 100 % of the demand']
n_labels = 11
array labels[11] = ['per-request', 'pool, compact every 10', 'paged', 'paged, shared', 'hybrid < 64, compact every 10, shared', 'pool, no compaction', 'pool, compact every 1000', 'paged, prepared', 'paged, shared, prepared', 'hybrid < 128, compact every 10, shared', 'hybrid < 64, compact every 10']
n_at = 11
array at[11] = [2., 5.7, 9.4, 13.1, 16.799999999999997, 19.499999999999996, 21.199999999999996, 22.899999999999995, 24.599999999999994, 26.299999999999994, 27.999999999999993]
last = 27.999999999999993
height = 644

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

# Requests a second by allocator and budget: lying bars with intervals.
set xlabel 'requests a second'
stats data using ($6 == $6 ? $6 : $4) nooutput
set xrange [0:STATS_max * 1.1]
set yrange [last + 0.7:0.3]
set ytics () scale 0
do for [i = 1:n_labels] { set ytics add (labels[i] at[i]) }
set grid noytics xtics
set key tmargin right horizontal Left reverse samplen 1 width -3 maxrows 1 font ',11'
bar(i) = word('#b9dcf4 #56b4e9 #0072b2 #e69f00 #d55e00 #a8a8a8', i)
plot for [i = 1:n_title] data using ($1 == i ? $4 / 2 : NaN):3:(0):4:($3 - 0.46):($3 + 0.46) with boxxyerror fs solid 1 noborder lc rgb bar(i) title title[i], \
     for [i = 1:n_title] data using ($1 == i && $5 == $5 && $6 == $6 ? $5 : NaN):3:($6 - $5):(0) with vectors heads size screen 0.004, 90 lc rgb '#000000' lw 1.3 notitle, \
     for [i = 1:n_title] data using ($1 == i ? ($6 == $6 ? $6 : $4) : NaN):3:(sprintf('%.0f', $4)) with labels left offset 0.6, 0 font ',10' notitle
