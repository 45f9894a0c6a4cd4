-- The store of Headroom. The program embeds this file; it is also the documentation of the public tables.
--
-- Columns of `cell` are the keys of a cell (harness/formats/cell_keys.h; a test holds both together): a distribution
-- such as ttft_ms becomes ttft_ms_n, ttft_ms_min, ...; lists of words join with ';'; units are in the names; unknown is
-- NULL; booleans are 0 or 1. The column `json` keeps each object whole, so that nothing is lost by flattening.
-- `seq` counts insertions: `last` is the row with the highest.

PRAGMA application_id = 1213354836; -- 0x48525354, "HRST": marks the file as ours
PRAGMA user_version = 5;            -- version of this schema; 1 lacks cell.forced, 1 and 2 lack study and claim, 1 to 3 what
                                    -- stands below and the columns marked so, 1 to 4 the columns of GPUs

CREATE TABLE machine (
    machine_class TEXT PRIMARY KEY, -- CPU or GPU model, cores, memory: "epyc-zen4-2c-24g"
    first_seen TEXT NOT NULL,       -- UTC
    last_seen TEXT NOT NULL,
    json TEXT NOT NULL              -- facts as seen last
) WITHOUT ROWID;

CREATE TABLE run (
    seq INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,    -- 16 hex digits
    started TEXT NOT NULL,          -- UTC, ISO 8601
    ended TEXT,                     -- NULL: still running, or killed
    exit_code INTEGER,
    command TEXT,
    args TEXT,                      -- JSON of what was given
    build_commit TEXT,
    compiler TEXT,
    tags TEXT,
    manifest TEXT,                  -- what --resume must find unchanged
    machine_class TEXT REFERENCES machine (machine_class),
    machine TEXT,                   -- JSON: facts of the machine as this run saw them
    json TEXT NOT NULL
);

CREATE TABLE cell (
    seq INTEGER PRIMARY KEY,
    build_commit TEXT, build_number INTEGER, cpu_info TEXT, gpu_info TEXT, backends TEXT, model_filename TEXT,
    model_type TEXT, model_size INTEGER, model_n_params INTEGER, n_batch INTEGER, n_ubatch INTEGER, n_threads INTEGER,
    type_k TEXT, type_v TEXT, n_gpu_layers INTEGER, flash_attn INTEGER, n_prompt INTEGER, n_gen INTEGER,
    n_depth INTEGER, test_time TEXT, avg_ns REAL, stddev_ns REAL, avg_ts REAL, stddev_ts REAL, test TEXT,
    cell_id TEXT NOT NULL, run_id TEXT NOT NULL REFERENCES run (run_id), status TEXT, error TEXT, n_seqs INTEGER,
    isl INTEGER, osl INTEGER, quant TEXT, act TEXT, kv_layout TEXT, page_size INTEGER, kv_alloc TEXT, fusion TEXT,
    forced TEXT, weights TEXT, isa TEXT, device TEXT, seed INTEGER, tags TEXT,
    ttft_ms_n INTEGER, ttft_ms_min REAL, ttft_ms_p50 REAL, ttft_ms_p90 REAL, ttft_ms_p95 REAL, ttft_ms_p99 REAL,
    ttft_ms_max REAL, ttft_ms_mean REAL, ttft_ms_stddev REAL, ttft_ms_mad REAL, ttft_ms_ci95_lo REAL,
    ttft_ms_ci95_hi REAL, ttft_ms_weak TEXT,
    ttft_queue_ms_n INTEGER, ttft_queue_ms_min REAL, ttft_queue_ms_p50 REAL, ttft_queue_ms_p90 REAL,
    ttft_queue_ms_p95 REAL, ttft_queue_ms_p99 REAL, ttft_queue_ms_max REAL, ttft_queue_ms_mean REAL,
    ttft_queue_ms_stddev REAL, ttft_queue_ms_mad REAL, ttft_queue_ms_ci95_lo REAL, ttft_queue_ms_ci95_hi REAL,
    ttft_queue_ms_weak TEXT,
    ttft_prefill_ms_n INTEGER, ttft_prefill_ms_min REAL, ttft_prefill_ms_p50 REAL, ttft_prefill_ms_p90 REAL,
    ttft_prefill_ms_p95 REAL, ttft_prefill_ms_p99 REAL, ttft_prefill_ms_max REAL, ttft_prefill_ms_mean REAL,
    ttft_prefill_ms_stddev REAL, ttft_prefill_ms_mad REAL, ttft_prefill_ms_ci95_lo REAL, ttft_prefill_ms_ci95_hi REAL,
    ttft_prefill_ms_weak TEXT,
    ttft_first_sample_ms_n INTEGER, ttft_first_sample_ms_min REAL, ttft_first_sample_ms_p50 REAL,
    ttft_first_sample_ms_p90 REAL, ttft_first_sample_ms_p95 REAL, ttft_first_sample_ms_p99 REAL,
    ttft_first_sample_ms_max REAL, ttft_first_sample_ms_mean REAL, ttft_first_sample_ms_stddev REAL,
    ttft_first_sample_ms_mad REAL, ttft_first_sample_ms_ci95_lo REAL, ttft_first_sample_ms_ci95_hi REAL,
    ttft_first_sample_ms_weak TEXT,
    tpot_excl_first_ms_n INTEGER, tpot_excl_first_ms_min REAL, tpot_excl_first_ms_p50 REAL,
    tpot_excl_first_ms_p90 REAL, tpot_excl_first_ms_p95 REAL, tpot_excl_first_ms_p99 REAL,
    tpot_excl_first_ms_max REAL, tpot_excl_first_ms_mean REAL, tpot_excl_first_ms_stddev REAL,
    tpot_excl_first_ms_mad REAL, tpot_excl_first_ms_ci95_lo REAL, tpot_excl_first_ms_ci95_hi REAL,
    tpot_excl_first_ms_weak TEXT,
    itl_step_ms_n INTEGER, itl_step_ms_min REAL, itl_step_ms_p50 REAL, itl_step_ms_p90 REAL, itl_step_ms_p95 REAL,
    itl_step_ms_p99 REAL, itl_step_ms_max REAL, itl_step_ms_mean REAL, itl_step_ms_stddev REAL, itl_step_ms_mad REAL,
    itl_step_ms_ci95_lo REAL, itl_step_ms_ci95_hi REAL, itl_step_ms_weak TEXT,
    e2e_ms_n INTEGER, e2e_ms_min REAL, e2e_ms_p50 REAL, e2e_ms_p90 REAL, e2e_ms_p95 REAL, e2e_ms_p99 REAL,
    e2e_ms_max REAL, e2e_ms_mean REAL, e2e_ms_stddev REAL, e2e_ms_mad REAL, e2e_ms_ci95_lo REAL, e2e_ms_ci95_hi REAL,
    e2e_ms_weak TEXT,
    prefill_tok_s REAL, decode_tok_s REAL, output_tok_s REAL, per_user_tok_s REAL, requests_s REAL,
    prefill_req_s_device REAL, decode_tok_s_device REAL, goodput_req_s REAL, bytes_weights REAL, bytes_kv_read REAL,
    bytes_kv_write REAL, bytes_step REAL, flops_step REAL, flops_by_unit_fp32 REAL, flops_by_unit_bf16 REAL,
    flops_by_unit_int8 REAL, intensity_flop_byte REAL, prefill_bytes REAL, prefill_flops REAL, prefill_mfu REAL,
    prefill_roof_fraction REAL, prefill_bound TEXT, mbu REAL, mfu REAL, roof_time_ms REAL, roof_fraction REAL,
    bound TEXT, peak_read_gb_s REAL, peak_gflop_s_fp32 REAL, peak_gflop_s_bf16 REAL, peak_gflop_s_int8 REAL,
    cache_resident INTEGER, stop_reason TEXT, noise_rel REAL, warmups INTEGER, probe_overhead_pct REAL,
    psi_cpu_some_pct REAL, clock_ratio REAL, handoff_ns REAL, read_gb_s_before REAL, read_gb_s_after REAL,
    state_class TEXT, page_faults INTEGER, ctx_switches INTEGER, flags TEXT, kernels_prefill TEXT,
    kernels_decode TEXT, kv_bytes_needed INTEGER, kv_bytes_touched INTEGER, huge_pages INTEGER,
    rss_peak_bytes INTEGER,
    kv_bytes_reserved INTEGER, kv_row_bytes INTEGER, softmax TEXT, -- since version 4
    -- of GPUs, since version 5; device_ms: a step by the device's own clock; bytes: of a step, counted
    gpu_memory TEXT, graphs INTEGER, gemm TEXT, device_ms REAL, power_w REAL, energy_mj_token REAL,
    energy_mj_token_prefill REAL, sm_mhz REAL, memory_mhz REAL, temperature_c REAL, clock_reasons TEXT,
    power_limit_w REAL, dram_bytes_read REAL, dram_bytes_write REAL, tensor_pct REAL, l2_hit_pct REAL,
    warps_active_pct REAL,
    json TEXT NOT NULL,
    UNIQUE (run_id, cell_id)
);

CREATE TABLE sample (
    run_id TEXT NOT NULL,
    cell_id TEXT NOT NULL,
    i INTEGER NOT NULL,             -- order of measurement, from 0
    ns INTEGER NOT NULL,            -- wall time of one repetition
    flags TEXT,                     -- "throttled": kept, but left out of the statistics
    PRIMARY KEY (run_id, cell_id, i),
    FOREIGN KEY (run_id, cell_id) REFERENCES cell (run_id, cell_id) ON DELETE CASCADE
) WITHOUT ROWID;

CREATE TABLE op (
    run_id TEXT NOT NULL,
    cell_id TEXT NOT NULL,
    phase TEXT NOT NULL,            -- prefill, decode
    layer INTEGER,                  -- -1: outside the layers
    op TEXT NOT NULL,               -- op class: embed norm qkv rope ...
    kernel TEXT,
    n INTEGER,                      -- times it ran in the recorded repetitions
    median_ns REAL,                 -- of one call
    bytes REAL,                     -- of one call
    flops REAL,                     -- of one call
    mean_ns REAL,                   -- of one call; this and the next three since version 4
    imbalance_ns REAL,              -- of mean_ns: threads that waited for the slowest
    handoff_ns REAL,                -- of mean_ns: handing work to the team and back
    unit TEXT,                      -- that counts the flops: fp32, bf16, int8
    FOREIGN KEY (run_id, cell_id) REFERENCES cell (run_id, cell_id) ON DELETE CASCADE
);
CREATE INDEX op_of_cell ON op (run_id, cell_id);

CREATE TABLE roof (
    seq INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (run_id),
    machine_class TEXT,
    measured TEXT NOT NULL,         -- UTC
    llc_bytes INTEGER,              -- last-level cache as the knee of the size sweep
    clock_ghz REAL,
    handoff_ns REAL,                -- core to core, one way
    json TEXT NOT NULL              -- the object of `headroom roof --json`
);

-- From here to the end: what version 3 added. An older store gets these tables by the very lines below.

CREATE TABLE study (                -- a point of `headroom kv study`, committed before the next one is measured
    seq INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (run_id),
    key TEXT NOT NULL,              -- the same text for the same point
    part TEXT NOT NULL,             -- layouts, operations, dtypes, allocators
    name TEXT NOT NULL,             -- the layout, types or allocator
    n INTEGER,                      -- samples
    median REAL, ci95_lo REAL, ci95_hi REAL,
    unit TEXT,
    json TEXT NOT NULL,             -- the whole row, samples included
    UNIQUE (run_id, key)
);

CREATE TABLE claim (                -- a row of `headroom claims`
    seq INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (run_id),
    id TEXT NOT NULL,
    measured REAL, ci95_lo REAL, ci95_hi REAL,
    unit TEXT,
    n INTEGER,
    verdict TEXT,
    json TEXT NOT NULL,             -- the whole row, samples included where it was kept
    UNIQUE (run_id, id)
);

-- From here to the end: what version 4 added, by the same rule.

CREATE TABLE recorded (             -- a phase of a repetition with the recorder on; times of one request or one step
    run_id TEXT NOT NULL,
    cell_id TEXT NOT NULL,
    i INTEGER NOT NULL,             -- recorded repetition, from 0
    phase TEXT NOT NULL,            -- prefill, decode
    n INTEGER,                      -- requests (prefill) or steps (decode) that were recorded
    off_ns REAL,                    -- without the recorder: right before, or by the steps beside; NULL: none
    on_ns REAL,                     -- with the recorder
    op_ns REAL,                     -- sum of the ops in it
    n_ops REAL, n_jobs REAL,        -- ops, and times the team of threads ran
    probe_ns REAL,                  -- what recording these costs, by calibration
    PRIMARY KEY (run_id, cell_id, i, phase),
    FOREIGN KEY (run_id, cell_id) REFERENCES cell (run_id, cell_id) ON DELETE CASCADE
) WITHOUT ROWID;

CREATE TABLE range (                -- ranges or kernels that a profiler saw of a cell, imported from its tables
    run_id TEXT NOT NULL,
    cell_id TEXT NOT NULL,
    source TEXT NOT NULL,           -- "nsys nvtxsum", "ncu"
    name TEXT NOT NULL,             -- as in engine/README.md
    style TEXT,                     -- PushPop, StartEnd
    n INTEGER,
    total_ns REAL, mean_ns REAL, median_ns REAL, min_ns REAL, max_ns REAL, stddev_ns REAL,
    json TEXT NOT NULL,             -- the whole row
    FOREIGN KEY (run_id, cell_id) REFERENCES cell (run_id, cell_id) ON DELETE CASCADE
);
CREATE INDEX range_of_cell ON range (run_id, cell_id);

CREATE TABLE observe (              -- a row of `headroom observe`: what watching a cell costs
    seq INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES run (run_id),
    name TEXT NOT NULL,             -- how it was watched
    n INTEGER,                      -- pairs
    median REAL, ci95_lo REAL, ci95_hi REAL,
    unit TEXT,
    json TEXT NOT NULL,             -- the whole row, pairs included
    UNIQUE (run_id, name)
);
