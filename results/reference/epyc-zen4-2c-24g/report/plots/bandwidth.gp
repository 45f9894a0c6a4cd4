# Run in this folder: gnuplot bandwidth.gp reads ../data/bandwidth.tsv and writes bandwidth.svg
name = 'bandwidth'
height = 440
n_title = 2
array title[2] = ['1 thread', '2 threads']
l1_bytes = 32768.
l2_bytes = 1048576.
llc_bytes = 28238986.
cores = 2.

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

# Read bandwidth against the working set of a thread, one line per number of threads.
set logscale x 2
set xlabel 'working set of a thread'
set ylabel 'read bandwidth (GB/s)'
set xtics ('16 KiB' 2.**14, '64 KiB' 2.**16, '256 KiB' 2.**18, '1 MiB' 2.**20, '4 MiB' 2.**22, '16 MiB' 2.**24, '64 MiB' 2.**26, '256 MiB' 2.**28, '1 GiB' 2.**30)
stats data using 4 nooutput
set logscale y 10
set yrange [STATS_min / 1.4:STATS_max * 1.6]
set ytics (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
set key outside top right vertical Left reverse samplen 3 width -1
array cache[3] = [l1_bytes, l2_bytes, llc_bytes / (cores > 0 ? cores : 1)]
array cache_name[3] = ['L1', 'L2', 'last-level share']
do for [i = 1:3] {
  if (cache[i] == cache[i]) {
    set arrow i from first cache[i], graph 0 to first cache[i], graph 1 nohead dt 3 lc rgb '#777777' back
    set label i cache_name[i] at first cache[i], graph 0.98 offset 0.4, 0 left textcolor rgb '#555555' font ',11'
  }
}
plot for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4 with linespoints lc rgb colour(i) dt dash(i) pt shape(i) ps 0.6 lw 1.8 title title[i]
