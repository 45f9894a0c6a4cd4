/* cell_keys.h - every public key of a cell, once: JSON, CSV, the store's columns and the documentation come from here.
 *
 * In memory a cell is a json_t object with exactly these keys (null where unknown). X(key, kind):
 *   TEXT, INT, REAL, BOOL     one value or null
 *   DIST                      {n, min, p50, p90, p95, p99, max, mean, stddev, mad, ci95_lo, ci95_hi, weak: [...]} or null;
 *                             flattens to key_n, key_min, ..., key_weak
 *   WORDS                     list of words; joins with ';'
 *   UNITS                     {fp32, bf16, int8: number}; flattens to key_fp32, key_bf16, key_int8
 *   MAP2                      {"prefill": {op: name}, "decode": {...}}; flattens to key_prefill, key_decode as
 *                             "op=name;op=name"
 *   SAMPLES                   raw samples, one a repetition: JSON only (samples_ns is a table of its own in the store).
 *                             samples_*_ms: isl and pg rows, the median of the repetition's requests, null where it has
 *                             none; samples_flags: null, or "throttled" beside each sample that is left out */
#ifndef HR_CELL_KEYS_H
#define HR_CELL_KEYS_H

/* clang-format off */
#define HR_CELL_KEYS(X)                                                                                              \
    X(build_commit, TEXT) X(build_number, INT) X(cpu_info, TEXT) X(gpu_info, TEXT) X(backends, TEXT)                 \
    X(model_filename, TEXT) X(model_type, TEXT) X(model_size, INT) X(model_n_params, INT) X(n_batch, INT)            \
    X(n_ubatch, INT) X(n_threads, INT) X(type_k, TEXT) X(type_v, TEXT) X(n_gpu_layers, INT) X(flash_attn, BOOL)      \
    X(n_prompt, INT) X(n_gen, INT) X(n_depth, INT) X(test_time, TEXT) X(avg_ns, REAL) X(stddev_ns, REAL)             \
    X(avg_ts, REAL) X(stddev_ts, REAL) X(samples_ns, SAMPLES) X(samples_ts, SAMPLES) X(test, TEXT)                   \
    X(cell_id, TEXT) X(run_id, TEXT) X(status, TEXT) X(error, TEXT) X(n_seqs, INT) X(isl, INT) X(osl, INT)           \
    X(quant, TEXT) X(act, TEXT) X(kv_layout, TEXT) X(page_size, INT) X(kv_alloc, TEXT) X(fusion, TEXT)               \
    X(forced, TEXT) X(weights, TEXT) X(isa, TEXT) X(device, TEXT) X(seed, INT) X(tags, TEXT) X(ttft_ms, DIST)                        \
    X(ttft_queue_ms, DIST) X(ttft_prefill_ms, DIST) X(ttft_first_sample_ms, DIST) X(tpot_excl_first_ms, DIST)        \
    X(itl_step_ms, DIST) X(e2e_ms, DIST) X(prefill_tok_s, REAL) X(decode_tok_s, REAL) X(output_tok_s, REAL)          \
    X(per_user_tok_s, REAL) X(requests_s, REAL) X(prefill_req_s_device, REAL) X(decode_tok_s_device, REAL)           \
    X(goodput_req_s, REAL) X(bytes_weights, REAL) X(bytes_kv_read, REAL) X(bytes_kv_write, REAL)                     \
    X(bytes_step, REAL) X(flops_step, REAL) X(flops_by_unit, UNITS) X(intensity_flop_byte, REAL)                     \
    X(prefill_bytes, REAL) X(prefill_flops, REAL) X(prefill_mfu, REAL) X(prefill_roof_fraction, REAL)                \
    X(prefill_bound, TEXT) X(mbu, REAL) X(mfu, REAL) X(roof_time_ms, REAL) X(roof_fraction, REAL) X(bound, TEXT)     \
    X(peak_read_gb_s, REAL) X(peak_gflop_s, UNITS) X(cache_resident, BOOL) X(stop_reason, TEXT)                      \
    X(noise_rel, REAL) X(warmups, INT) X(probe_overhead_pct, REAL) X(psi_cpu_some_pct, REAL)                         \
    X(clock_ratio, REAL) X(handoff_ns, REAL) X(read_gb_s_before, REAL) X(read_gb_s_after, REAL)                      \
    X(state_class, TEXT) X(page_faults, INT) X(ctx_switches, INT) X(flags, WORDS) X(kernels, MAP2)                   \
    X(kv_bytes_needed, INT) X(kv_bytes_touched, INT) X(huge_pages, BOOL) X(rss_peak_bytes, INT)    \
    X(kv_bytes_reserved, INT) X(kv_row_bytes, INT) X(softmax, TEXT)                                                   \
    X(gpu_memory, TEXT) X(graphs, BOOL) X(gemm, TEXT) X(device_ms, REAL) X(power_w, REAL) X(energy_mj_token, REAL)   \
    X(energy_mj_token_prefill, REAL) X(sm_mhz, REAL) X(memory_mhz, REAL) X(temperature_c, REAL)                      \
    X(clock_reasons, TEXT) X(power_limit_w, REAL) X(dram_bytes_read, REAL) X(dram_bytes_write, REAL)                 \
    X(tensor_pct, REAL) X(l2_hit_pct, REAL) X(warps_active_pct, REAL)                                                \
    X(samples_ttft_ms, SAMPLES) X(samples_tpot_ms, SAMPLES) X(samples_e2e_ms, SAMPLES)                               \
    X(samples_prefill_ms, SAMPLES) X(samples_flags, SAMPLES)
/* clang-format on */

/* The numbers of a distribution, in order; "weak" (list of words) follows them. */
#define HR_DIST_KEYS(X) X(n) X(min) X(p50) X(p90) X(p95) X(p99) X(max) X(mean) X(stddev) X(mad) X(ci95_lo) X(ci95_hi)

#endif
