# Share of a request's time until the first token and after it, by input length.
set xlabel 'input length (tokens)' offset 0, -0.2 - n_title
set bmargin 4.5 + n_title
set ylabel 'share of the median end-to-end time (%)'
set yrange [0:100]
set xrange [0.3:at[n_at] + 0.7]
set xtics () scale 0
do for [i = 1:n_at] { set xtics add (labels[i] at[i]) }
set grid noxtics
do for [i = 1:n_title] { set label i title[i] at first centre[i], graph 0 offset 0, -0.9 - i center font ',11' textcolor rgb '#444444' }
set key outside top right vertical Left reverse samplen 2
plot data using 3:(100):(0.7) with boxes fs solid 1 lc rgb '#a9d1ee' title 'decode', \
     data using 3:4:(0.7) with boxes fs solid 1 lc rgb '#d55e00' title 'to first token', \
     data using 3:($4 > 12 ? $4 / 2 : NaN):(sprintf(n_at > 8 ? '%.0f' : '%.0f %%', $4)) with labels textcolor rgb '#ffffff' font ',12' notitle, \
     data using 3:($4 > 12 ? NaN : $4 + 4):(sprintf(n_at > 8 ? '%.0f' : '%.0f %%', $4)) with labels textcolor rgb '#1b1b1b' font ',12' notitle
