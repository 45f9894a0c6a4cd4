# Cells over nights, a panel each: panels[] names the data, heads[] the titles, units[] what is drawn, nights[] how many,
# first[] and last[] their dates, lowest[] and highest[] the values. Two panels stand side by side.
strip = 30. / height # the key, above the panels
n_rows = (n_panels + 1) / 2
part = (1. - strip) / n_rows
tint(better) = better > 0 ? 0x0072b2 : 0xd55e00
set lmargin 7
set rmargin 2
set tmargin 2.2
set bmargin 2.2
unset xtics
set multiplot
# the key, as a plot of nothing over the whole width
set origin 0, 1. - strip
set size 1, strip
unset border
unset ytics
unset grid
set xrange [0:1]
set yrange [0:1]
set key at screen 0.5, screen 1. - 0.5 * strip center center horizontal maxcols 5 samplen 1.2 width -4 font ',11'
plot NaN with lines lc rgb '#a9b0b8' lw 1 title 'a night', NaN with lines lc rgb '#1b1b1b' lw 2 title 'level', \
     NaN with lines lc rgb '#d55e00' lw 1.8 title 'worse from here', NaN with lines lc rgb '#0072b2' lw 1.8 title 'better from here', \
     NaN with lines lc rgb '#707070' lw 1.8 dt 2 title 'not settled'
unset key
set border 3 lc rgb '#555555'
set grid back lc rgb '#e0e3e7' lt 1 lw 0.7
do for [k = 1:n_panels] {
    data = '../data/'.panels[k].'.tsv'
    set origin 0.5 * ((k - 1) % 2), 1. - strip - part * (int((k - 1) / 2) + 1)
    set size 0.5, part
    # from the panel's left edge on, so that a long name fits
    set label 3 heads[k].'  ('.units[k].')' at screen 0.5 * ((k - 1) % 2) + 0.01, graph 1 offset 0, 0.9 left font ',10'
    # noise of a few percent looks flat; a change has its figure above the curve
    middle = 0.5 * (lowest[k] + highest[k])
    span = highest[k] - lowest[k] > 0.05 * middle ? highest[k] - lowest[k] : 0.05 * middle
    low = middle - 0.6 * span
    high = middle + 0.8 * span
    set yrange [low:high]
    set ytics nomirror out scale 0.6 textcolor rgb '#222222' font ',10' offset 0.6, 0 (sprintf('%.3g', middle - 0.5 * span) middle - 0.5 * span, sprintf('%.3g', middle + 0.5 * span) middle + 0.5 * span)
    set xrange [1. - 0.03 * nights[k]:nights[k] + 0.03 * nights[k] + 0.5]
    set label 1 first[k] at graph 0, -0.13 left font ',10' textcolor rgb '#4a525a'
    set label 2 last[k] at graph 1, -0.13 right font ',10' textcolor rgb '#4a525a'
    size = nights[k] > 100 ? 0.18 : 0.4
    reach = 0.78 * (high - low)
    plot data using 1:2 with lines lc rgb '#a9b0b8' lw 1 notitle, \
         data using 1:(nights[k] > 160 ? NaN : $2) with points pt 7 ps size lc rgb '#707070' notitle, \
         data using 1:3 with lines lc rgb '#1b1b1b' lw 2 notitle, \
         data using ($4 == 1 && $5 == 0 ? $1 - 0.5 : NaN):(low):(0):(reach) with vectors nohead lc rgb '#d55e00' lw 1.8 dt 1 notitle, \
         data using ($4 == 1 && $5 == 1 ? $1 - 0.5 : NaN):(low):(0):(reach) with vectors nohead lc rgb '#0072b2' lw 1.8 dt 1 notitle, \
         data using ($4 == 2 && $5 == 0 ? $1 - 0.5 : NaN):(low):(0):(reach) with vectors nohead lc rgb '#d55e00' lw 1.8 dt 2 notitle, \
         data using ($4 == 2 && $5 == 1 ? $1 - 0.5 : NaN):(low):(0):(reach) with vectors nohead lc rgb '#0072b2' lw 1.8 dt 2 notitle, \
         data using ($4 > 0 ? $1 - 0.5 : NaN):(low + 0.91 * (high - low)):6:(tint($5)) with labels font ',10' textcolor rgb variable notitle
}
unset multiplot
