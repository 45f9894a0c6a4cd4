#!/bin/sh
# A store of many nights, the same bytes of numbers each time: a few real cells, multiplied by SQL.
# usage: bench/big_store.sh BUILD FILE [NIGHTS=400] [COPIES=10]     COPIES of 5 cells with 50 samples a night: 1,000,000
# samples. Every fifth cell gets 5 % slower on one night, and each night differs from the next by 1 %.
bin=${1:-build}/headroom; file=$2; nights=${3:-400}; copies=${4:-10}
[ -x "$bin" ] && [ -n "$file" ] || { echo "usage: $0 BUILD FILE [NIGHTS] [COPIES]" >&2; exit 2; }
command -v sqlite3 >/dev/null || { echo "$0: needs the sqlite3 command" >&2; exit 2; }
rm -f "$file" "$file-wal" "$file-shm"
"$bin" sweep -m synth:tiny -p 16,32 -n 4,8 --isl 16 --osl 4 -r 3 --db "$file" -q -o csv >/dev/null || exit 1

sql() {
  cat <<'END'
PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF;
CREATE TEMP TABLE run1 AS SELECT * FROM run;
CREATE TEMP TABLE cell1 AS SELECT * FROM cell;
CREATE TEMP TABLE op1 AS SELECT * FROM op;
DELETE FROM sample; DELETE FROM op; DELETE FROM recorded; DELETE FROM cell; DELETE FROM roof; DELETE FROM run;
CREATE TEMP TABLE copy (k INTEGER);
CREATE TEMP TABLE many AS SELECT cell1.*, cell_id AS id1, 0 AS number, 1.0 AS slower FROM cell1 WHERE 0;
CREATE TEMP TABLE number (i INTEGER);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 49) INSERT INTO number SELECT i FROM n;
END
  echo "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < $copies - 1) INSERT INTO copy SELECT i FROM n;"
  cat <<'END'
INSERT INTO many SELECT cell1.*, cell_id, seq * 131 + k, 1.0 FROM cell1, copy;
UPDATE many SET cell_id = printf('%016x', number * 2654435761), status = 'ok', state_class = 'near', flags = NULL,
                stop_reason = 'converged', n_depth = number / 131 + 16 * (number % 131);
CREATE TEMP TABLE flat AS SELECT * FROM cell1 WHERE 0;
END
  night=1
  while [ "$night" -le "$nights" ]; do
    run=$(printf '%016x' $((night * 7919)))
    cat <<END
INSERT INTO run SELECT NULL, '$run', strftime('%Y-%m-%dT03:00:00Z', '2025-01-01', '+$night days'), NULL, 0, command, args,
  printf('%09x', $night / 2 * 104729), compiler, tags, manifest, machine_class, machine, json FROM run1;
UPDATE many SET run_id = '$run', seq = NULL,
  slower = 1 + 0.01 * (((number * 7 + $night) * 7919 % 1000) / 999.0 - 0.5) + 0.05 * (number % 5 = 0 AND $night > 100 + number % 200);
DELETE FROM flat;
END
    echo "INSERT INTO flat SELECT $columns FROM many;"
    cat <<END
INSERT INTO cell SELECT * FROM flat;
INSERT INTO sample SELECT run_id, cell_id, i, CAST(1e7 * slower * (1 + 0.01 * (i * 7919 % 100) / 99.0) AS INTEGER), NULL
  FROM many, number;
INSERT INTO op SELECT many.run_id, many.cell_id, $ops FROM many JOIN op1 ON op1.cell_id = id1;
END
    night=$((night + 1))
  done
  echo "COMMIT;"
}
# Times and shares follow the factor, in the columns and in the JSON; the rest is as it was measured.
columns=$(sqlite3 "$file" "SELECT group_concat(CASE
  WHEN name = 'seq' THEN 'NULL'
  WHEN name IN ('roof_fraction', 'prefill_roof_fraction', 'mbu', 'mfu', 'prefill_mfu') THEN '0.7 * ' || name || ' / ' || name || ' / slower'
  WHEN name GLOB '*_ms_p50' OR name GLOB '*_ms_ci95*' OR name = 'avg_ns' THEN name || ' * slower'
  WHEN name = 'json' THEN 'json_set(json, ''\$.cell_id'', cell_id, ''\$.run_id'', run_id, ''\$.roof_fraction'', 0.7 / slower,
    ''\$.state_class'', ''near'', ''\$.status'', ''ok'', ''\$.n_depth'', n_depth, ''\$.stop_reason'', ''converged'', ''\$.flags'', json(''[]''),
    ''\$.samples_ns'', (SELECT json_group_array(CAST(1e7 * slower * (1 + 0.01 * (i * 7919 % 100) / 99.0) AS INTEGER)) FROM number))'
  ELSE name END, ', ') FROM pragma_table_info('cell')")
ops=$(sqlite3 "$file" "SELECT group_concat('op1.' || name, ', ') FROM pragma_table_info('op') WHERE name NOT IN ('run_id', 'cell_id')")
sql | sqlite3 "$file" >/dev/null || exit 1
sqlite3 "$file" "PRAGMA journal_mode = WAL" >/dev/null
sqlite3 "$file" "SELECT (SELECT count(*) FROM run) || ' nights, ' || (SELECT count(*) FROM cell) || ' cells, ' ||
  (SELECT count(*) FROM sample) || ' samples'"
