# Peak arithmetic rate by unit, one bar per number of threads.
set style fill solid 0.85 border lc rgb '#333333'
set ylabel 'peak (GFLOP/s; int8: GOP/s)'
stats data using 4 nooutput
set yrange [0:STATS_max * 1.18]
set xrange [0.4:n_units + 0.6]
set xtics ()
do for [i = 1:n_units] { set xtics add (units[i] i) }
set grid noxtics
set key outside top right vertical Left reverse samplen 2
w = 0.7 / n_title
at(i, x) = x + (i - (n_title + 1) / 2.) * w
lo(i) = column(5) == column(5) ? column(5) : column(4)
hi(i) = column(6) == column(6) ? column(6) : column(4)
plot for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):4:(w * 0.92) with boxes fs solid (i == 1 ? 0.45 : 0.9) lc rgb colour(i + 1) title title[i], \
     for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):(lo(i)):(0):(hi(i) - lo(i)) with vectors arrowstyle 1 notitle, \
     for [i = 1:n_title] data using ($1 == i ? at(i, $3) : NaN):(hi(i)):(sprintf('%.0f', $4)) with labels offset 0, 0.7 font ',11' notitle
