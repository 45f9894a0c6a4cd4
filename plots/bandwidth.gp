# Read bandwidth against the working set of a thread, one line per number of threads.
set logscale x 2
set xlabel 'working set of a thread'
set ylabel 'read bandwidth (GB/s)'
set xtics ('16 KiB' 2.**14, '64 KiB' 2.**16, '256 KiB' 2.**18, '1 MiB' 2.**20, '4 MiB' 2.**22, '16 MiB' 2.**24, '64 MiB' 2.**26, '256 MiB' 2.**28, '1 GiB' 2.**30)
stats data using 4 nooutput
set logscale y 10
set yrange [STATS_min / 1.4:STATS_max * 1.6]
set ytics (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
set key outside top right vertical Left reverse samplen 3 width -1
array cache[3] = [l1_bytes, l2_bytes, llc_bytes / (cores > 0 ? cores : 1)]
array cache_name[3] = ['L1', 'L2', 'last-level share']
do for [i = 1:3] {
  if (cache[i] == cache[i]) {
    set arrow i from first cache[i], graph 0 to first cache[i], graph 1 nohead dt 3 lc rgb '#777777' back
    set label i cache_name[i] at first cache[i], graph 0.98 offset 0.4, 0 left textcolor rgb '#555555' font ',11'
  }
}
plot for [i = 1:n_title] data using ($1 == i ? $3 : NaN):4 with linespoints lc rgb colour(i) dt dash(i) pt shape(i) ps 0.6 lw 1.8 title title[i]
