# Run in this folder: gnuplot request.gp reads ../data/request.tsv and writes request.svg
name = 'request'
height = 440
n_title = 1
array title[1] = ['smollm2-135m bf16, osl 32']
n_centre = 1
array centre[1] = [2.5]
n_labels = 4
array labels[4] = ['128', '256', '512', '1024']
n_at = 4
array at[4] = [1., 2., 3., 4.]

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
