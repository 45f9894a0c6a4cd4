# Time by op class: the part that the ceilings ask for, and what is above it.
set ylabel (name eq 'ops_prefill' ? 'time in a prefill (ms)' : 'time in a decode step (ms)')
stats data using 4 nooutput
set yrange [0:STATS_max * 1.15]
set xrange [0.3:n_labels + 0.7]
set xtics ()
do for [i = 1:n_labels] { set xtics add (labels[i] i) }
set xtics rotate by -30 left
set grid noxtics
set key inside top right vertical Left reverse samplen 2
plot data using 3:4:(0.7) with boxes fs pattern 4 lc rgb '#d55e00' title 'above its roof time', \
     data using 3:7:(0.7) with boxes fs solid 1 lc rgb '#0072b2' title 'roof time', \
     data using 3:4:(sprintf($8 < 0.1 ? '< 0.1 %%' : $8 < 9.95 ? '%.1f %%' : '%.0f %%', $8)) with labels offset 0, 0.7 font ',11' notitle
