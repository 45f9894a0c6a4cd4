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
# The last part of the width is left to the names of the roofs: no mark comes there.
x_named = x_min * (x_max / x_min) ** (1 / (1 - 0.17))
x_max = x_named > ridge * 16 ? x_named : ridge * 16
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
