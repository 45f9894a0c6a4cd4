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
