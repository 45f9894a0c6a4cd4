# Run in this folder: gnuplot kv_heatmap.gp reads ../data/kv_heatmap.tsv and writes kv_heatmap.svg
name = 'kv_heatmap'
height = 500
n_title = 13
array title[13] = ['head', 'token', 'block', 'zorder', 'zorder-h', 'shuffled', 'paged:1', 'paged:16', 'paged:64', 'paged:256', 'paged-nhd:16', 'paged-identity:16', 'contiguous-best']
n_labels = 7
array labels[7] = ['16', '128', '512', '1024', '4096', '16384', '65536']
n_sizes = 7
array sizes[7] = ['32 KiB', '256 KiB', '1 MiB', '2 MiB', '8 MiB', '32 MiB', '128 MiB']
height = 562

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

# Time of attention relative to the layout head: layouts against contexts. Blue is faster, orange slower, grey no difference.
set xrange [0.5:n_labels + 0.5]
set yrange [n_title + 0.5:0.5]
set xtics () scale 0
do for [i = 1:n_labels] { set xtics add (labels[i] i) }
do for [i = 1:n_sizes] { set label i sizes[i] at first i, graph 0 offset 0, -2.1 center font ',10' textcolor rgb '#555555' }
set ytics () scale 0
do for [i = 1:n_title] { set ytics add (title[i] i) }
set xlabel 'context (tokens), and its K and V of one layer' offset 0, -0.9
set bmargin 5
unset grid
unset border
set key tmargin center horizontal Left reverse samplen 1 width 0 maxrows 1
# Half of the way to the full colour at once, so that a small difference is seen; full at 1.5 times.
strength(r) = 0.35 + 0.65 * (abs(log(r)) > log(1.5) ? 1 : abs(log(r)) / log(1.5))
part(from, to, s) = int(from + (to - from) * s + 0.5)
mixed(r, g, b, s) = part(250, r, s) * 65536 + part(250, g, s) * 256 + part(250, b, s)
clear_one(v) = v eq 'slower' || v eq 'faster'
fill(r, v) = clear_one(v) ? (r > 1 ? mixed(213, 94, 0, strength(r)) : mixed(0, 114, 178, strength(r))) : v eq 'no difference' ? 0xd3d7db : 0xffffff
ink(r, v) = v eq 'faster' && strength(r) > 0.7 ? 0xffffff : v eq 'inconclusive' || v eq 'no verdict' ? 0x5a6066 : 0x111111
plot data using 3:4:($3 - 0.485):($3 + 0.485):($4 - 0.46):($4 + 0.46):(fill($6, strcol(10))) with boxxyerror fs solid 1 border lc rgb '#c4c9ce' lc rgb variable notitle, \
     data using 3:($4 - 0.17):(strcol(11)):(ink($6, strcol(10))) with labels font ',12' textcolor rgb variable notitle, \
     data using 3:($4 + 0.24):(strcol(12)):(ink($6, strcol(10))) with labels font ',9' textcolor rgb variable notitle, \
     keyentry with boxes fs solid 1 noborder lc rgb mixed(0, 114, 178, 0.8) title 'faster than head', \
     keyentry with boxes fs solid 1 noborder lc rgb 0xd3d7db title 'no difference (within 2 %)', \
     keyentry with boxes fs solid 1 noborder lc rgb mixed(213, 94, 0, 0.8) title 'slower than head', \
     keyentry with boxes fs solid 1 border lc rgb '#8a8f95' lc rgb '#ffffff' title 'inconclusive'
