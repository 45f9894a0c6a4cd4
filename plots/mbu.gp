# MBU of decode, one bar per model and quantization.
set ylabel 'MBU (% of read bandwidth)'
stats data using 4 nooutput
top = STATS_max * 1.15 + 5
set yrange [0:top]
set xrange [0.3:n_labels + 0.7]
set xtics ()
do for [i = 1:n_labels] { set xtics add (labels[i] i) }
set grid noxtics
if (top > 100) { set arrow 1 from graph 0, first 100 to graph 1, first 100 nohead dt 2 lc rgb '#777777' back }
set key tmargin left horizontal Left reverse samplen 2 maxcols 2
plot for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4:(0.62) with boxes fs solid (0.9 - 0.3 * ((i - 1) % 3)) lc rgb colour(i + 1) title title[i], \
     data using 3:5:(0):($6 - $5) with vectors arrowstyle 1 notitle, \
     data using 3:($6 == $6 ? $6 : $4):(sprintf('%.0f %%', $4)) with labels offset 0, 0.7 font (n_labels > 8 ? ',10' : ',12') notitle
