# Run in this folder: gnuplot roofline_ops.gp reads ../data/roofline_ops.tsv and writes roofline_ops.svg
name = 'roofline_ops'
height = 560
n_title = 12
array title[12] = ['prefill gate_up', 'prefill down', 'prefill qkv', 'prefill out', 'prefill head', 'prefill attention', 'decode gate_up', 'decode down', 'decode head', 'decode qkv', 'decode out', 'decode attention']
n_mark = 12
array mark[12] = [4, 5, 1, 3, 6, 2, 4, 5, 6, 1, 3, 2]
n_prefill = 6
read_gb_s = 66.91121530593914
read_low_gb_s = 33.91523901425578
datasheet_gb_s = NaN
n_roof_name = 3
array roof_name[3] = ['fp32', 'bf16', 'int8']
n_roof_gflop_s = 3
array roof_gflop_s[3] = [236.43245078434367, 472.8503623819824, 945.6602845311795]

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

# Roofline: rate against intensity, both logarithmic. Roofs from read_gb_s and roof_gflop_s[], by unit.
set logscale xy 10
set xlabel 'arithmetic intensity (flop / byte of weights and KV)'
set ylabel 'rate (GFLOP/s; int8: GOP/s)'
stats data using 3 nooutput
x_min = STATS_min; x_max = STATS_max
stats data using 4 nooutput
y_min = STATS_min; y_max = STATS_max
top = 0
do for [i = 1:n_roof_name] { if (roof_gflop_s[i] > top) { top = roof_gflop_s[i] } }
ridge = top / read_gb_s
x_min = (x_min < ridge / 20 ? x_min : ridge / 20) / 2
x_max = (x_max > ridge * 8 ? x_max : ridge * 8) * 2
low = exists('read_low_gb_s') && read_low_gb_s == read_low_gb_s
read_low = low ? read_low_gb_s : read_gb_s
y_low = x_min * read_low
y_min = (y_min < y_low ? y_min : y_low) / 1.6
y_max = (y_max > top ? y_max : top) * 2.2
set xrange [x_min:x_max]
set yrange [y_min:y_max]
set format x '%g'
set format y '%g'
set grid xtics ytics mxtics mytics lc rgb '#e0e3e7' lt 1 lw 0.7, lc rgb '#f0f2f4' lt 1 lw 0.5
set key outside right top vertical Left reverse samplen 1.5 width -2 maxrows 24
slant = atan2(480. / log10(y_max / y_min), 560. / log10(x_max / x_min)) * 180 / pi
slope(x) = x <= ridge * 1.0001 ? x * read_gb_s : NaN
slope_low(x) = low && x <= top / read_low * 1.0001 ? x * read_low : NaN
flat(x, p) = x >= p / read_gb_s * 0.9999 ? p : NaN
set samples 800
set label 100 sprintf('read %.0f GB/s', read_gb_s) at first x_min * 1.25, first x_min * 1.25 * read_gb_s * 1.35 left rotate by slant textcolor rgb '#333333' font ',11'
do for [i = 1:n_roof_name] {
  set label 100 + i sprintf('%s %.0f', roof_name[i], roof_gflop_s[i]) at first x_max / 1.1, first roof_gflop_s[i] * 1.14 right textcolor rgb '#333333' font ',11'
  set label 200 + i sprintf('%.1f', roof_gflop_s[i] / read_gb_s) at first roof_gflop_s[i] / read_gb_s, first roof_gflop_s[i] point pt 2 ps 0.8 lc rgb '#333333' offset -0.4, 0.7 right textcolor rgb '#333333' font ',10'
}
sheet = exists('datasheet_gb_s') && datasheet_gb_s == datasheet_gb_s
ops = name eq 'roofline_ops'
roof_dash(k) = k == n_roof_name ? 1 : 2
# Shape and colour say what it is (of op classes: shape alone, colour the phase); filled is prefill, hollow is decode.
mark_shape(i) = i <= n_prefill ? filled(mark[i]) : hollow(mark[i])
mark_colour(i) = ops ? colour(i <= n_prefill ? 2 : 3) : colour(mark[i])
plot slope(x) with lines lc rgb '#333333' lw 2 title 'measured roof', \
     for [k = 1:n_roof_name] flat(x, roof_gflop_s[k]) with lines lc rgb '#333333' lw 2 dt roof_dash(k) notitle, \
     slope_low(x) with lines lc rgb '#333333' lw 1.5 dt 2 title (low ? sprintf('lowest read roof: %.0f GB/s', read_low) : ''), \
     sheet ? x * datasheet_gb_s : NaN with lines lc rgb '#888888' lw 1.5 dt 3 title (sheet ? 'datasheet bandwidth' : ''), \
     for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4 with points lc rgb mark_colour(i) pt mark_shape(i) ps 1.1 lw 1.6 title title[i]
