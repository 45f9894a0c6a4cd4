# Run in this folder: gnuplot kv_curves.gp reads ../data/kv_curves.tsv and writes kv_curves.svg
name = 'kv_curves'
height = 760
n_title = 13
array title[13] = ['head', 'token', 'block', 'zorder', 'zorder-h', 'shuffled', 'paged:1', 'paged:16', 'paged:64', 'paged:256', 'paged-nhd:16', 'paged-identity:16', 'contiguous-best']
n_look = 13
array look[13] = [1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 7, 7]
n_shown = 52
array shown[52] = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0]
n_panel = 4
array panel[4] = [7, 7, 7, 7]
n_xs = 7
array xs[7] = [16., 128., 512., 1024., 4096., 16384., 65536.]

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

# Bandwidth of attention against the context, one line per layout: left without pages, right with them; above cold, below warm.
rows = panel[3] + panel[4] > 0 && panel[1] + panel[2] > 0 ? 2 : 1
set logscale x 2
# Beside each other where they meet.
aside(i, x) = x * 2 ** ((i - (n_title + 1) / 2.) * 0.02 * (log(xs[n_xs] / xs[1]) / log(2)) / 7)
set xtics () font ',10'
do for [i = 1:n_xs] { set xtics add (sprintf('%.0f', xs[i]) xs[i]) }
set multiplot layout rows, 2 margins char 8.5, 1.5, 4, 1.6 spacing char 8, 6.2
do for [p = 1:4] {
  if (panel[p] > 0) {
    set yrange [*:*]
    stats data using ($9 == (p % 2 ? p : p - 1) || $9 == (p % 2 ? p + 1 : p) ? $4 : NaN) nooutput
    set yrange [0:STATS_max * 1.45]
    set xlabel 'context (tokens)' offset 0, 0.4
    set ylabel (p % 2 ? (p < 3 ? 'cold: GB/s' : 'warm: GB/s') : '') offset 1, 0
    set label 1 (p % 2 ? 'contiguous' : 'pages').(p < 3 ? ', caches emptied before each read' : ', the same memory again and again') at graph 0, graph 1.035 left textcolor rgb '#333333' font ',12'
    set key inside top center horizontal Left reverse samplen 2.4 width -1 maxcols 3 font ',10'
    set offsets graph 0.04, graph 0.04, 0, 0
    plot for [i = 1:n_title] data using ($1 == i && $9 == p && $5 == $5 && $6 == $6 ? aside(i, $3) : NaN):5:(0):($6 - $5) with vectors heads size screen cap, 90 lc rgb colour(look[i]) lw 1 notitle, \
         for [i = 1:n_title] data using ($1 == i && $9 == p ? aside(i, $3) : NaN):4 with linespoints lc rgb colour(look[i]) dt dash(look[i]) pt shape(look[i]) ps 0.7 lw 1.6 title (shown[(p - 1) * n_title + i] ? title[i] : '')
  } else { if (panel[p % 2 ? p + 1 : p - 1] > 0) { set multiplot next } }
}
unset multiplot
