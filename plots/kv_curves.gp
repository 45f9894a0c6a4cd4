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
