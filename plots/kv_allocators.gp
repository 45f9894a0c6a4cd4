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
