# From what the ceilings allow to what was measured: each bar begins where the one above it ends. A panel a metric:
# panels[] names the data, heads[] the titles, rows[] the bars, lowest[] and highest[] the ends of the axis in ms.
tint(i) = word('#0072b2 #d55e00 #e69f00 #b3569b #56b4e9 #808080 #1b1b1b', i)
array says[7] = ['ideal', 'lost', 'waiting', 'gaps', 'recorder', 'unexplained', 'measured']
low(from, to) = from < to ? from : to
high(from, to) = from < to ? to : from
around = 4.6 # rows that title, axis and its label take
total = 0.
do for [k = 1:n_panels] { total = total + rows[k] + around }
strip = 26. / height # the key, above the panels
top = 1. - strip
set ytics nomirror scale 0
set xlabel 'ms' offset 0, 0.6
set style fill solid 0.9 noborder
set lmargin 17
set rmargin 3
set multiplot
do for [k = 1:n_panels] {
    data = '../data/'.panels[k].'.tsv'
    part = (rows[k] + around) / total * (1. - strip)
    set origin 0, top - part
    set size 1, part
    top = top - part
    set title heads[k] font ',14'
    set yrange [rows[k] + 0.7:0.3]
    span = highest[k] - lowest[k]
    set xrange [lowest[k] - (lowest[k] < 0 ? 0.12 * span : 0):highest[k] + 0.14 * span]
    smallest = span >= 1000 ? 0.5 : span >= 100 ? 0.05 : span >= 10 ? 0.005 : 0.0005
    figure(v) = sprintf(span >= 1000 ? '%.0f' : span >= 100 ? '%.1f' : span >= 10 ? '%.2f' : '%.3f', abs(v) < smallest ? 0 : v)
    if (k == 1) { set key at screen 0.5, screen 1. - 0.5 * strip center center horizontal maxcols 7 samplen 0.6 width -2.4 font ',11' } else { unset key }
    plot for [i = 1:7] data using ($1 == i ? $5 : NaN):3:(low($4, $5)):(high($4, $5)):($3 - 0.36):($3 + 0.36):ytic(7) \
             with boxxyerror lc rgb tint(i) title says[i], \
         data using 5:($3 + 0.36):(0):($3 < rows[k] - 1 ? 0.28 : 0) with vectors nohead lc rgb '#999999' lw 0.8 notitle, \
         data using (high($4, $5)):3:(figure($6)) with labels left offset 0.5, 0 font ',11' notitle
}
unset multiplot
