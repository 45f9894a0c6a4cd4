# Headroom - the only build file. `make help` lists the targets.
#
# Sources are found by folder: kernels/ engine/ harness/ make one static library each and the program; a file named
# *_avx2.c or *_avx512.c is compiled for that ISA (chosen at run time); every tests/test_*.c is a test program,
# tests/fuzz/fuzz_*.c a fuzz target. BUILD=folder builds elsewhere, SAN=address,undefined with sanitizers.

BUILD   ?= build
# Images of kernels for GPUs: they depend on no flag of a build, so all builds share them.
CUDA_BUILD ?= build/cuda
PREFIX  ?= /usr/local
ifeq ($(origin CC),default)
CC      := gcc
endif
SAN     ?=
OPT     ?= -O2
CUDA    ?= /usr/local/cuda

# Builds use all cores unless the caller says how many.
JOBS = $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc))

# One short line a step; V=1 prints the commands.
say = @$(if $(V),,printf '  %-4s %s\n' $(1) $(2);)
quiet = $(if $(V),,@)

ARCH    := $(shell uname -m)
WARN    := -Wall -Wextra -Wshadow -Werror
CPPFLAGS += -D_GNU_SOURCE -I. -MMD -MP
CFLAGS  += -std=c17 $(OPT) -g -fno-math-errno -fno-trapping-math -ffp-contract=off -fno-omit-frame-pointer -pthread $(WARN)
LDLIBS  += -lsqlite3 -ljansson -lpcre2-8 -lhwloc -ldl -lm -lpthread
ifneq ($(SAN),)
CFLAGS  += -fsanitize=$(SAN) -fno-sanitize-recover=all
LDFLAGS += -fsanitize=$(SAN)
endif
ifneq ($(wildcard $(CUDA)/include/nvtx3/nvToolsExt.h),)
CPPFLAGS += -DHR_HAVE_NVTX -isystem $(CUDA)/include
endif

# The CUDA backend is built where the toolkit is; nothing of it is linked, its libraries are opened at run time.
NVCC := $(wildcard $(CUDA)/bin/nvcc)
ifneq ($(and $(NVCC),$(wildcard $(CUDA)/include/cuda.h)),)
HAVE_CUDA := 1
CPPFLAGS  += -DHR_HAVE_CUDA -isystem $(CUDA)/include
endif

# NOPROBES=1 leaves the probes of the engine out: to measure what they cost while nobody listens (make probe-cost).
ifneq ($(NOPROBES),)
CPPFLAGS += -DHR_NO_PROBES
endif

ISA_avx2   := -mavx2 -mfma -mf16c -mbmi2
ISA_avxvnni := $(ISA_avx2) -mavxvnni
ISA_avx512 := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mavx512bf16

comma := ,
find_c = $(sort $(foreach d,$(1),$(wildcard $(d)/*.c $(d)/*/*.c)))
KERNELS_SRC := $(call find_c,kernels)
ENGINE_SRC  := $(call find_c,engine)
ifneq ($(HAVE_CUDA),)
ENGINE_SRC  := $(filter-out $(if $(wildcard engine/cuda/*.c),engine/no_cuda.c),$(ENGINE_SRC))
CUDA_SRC    := $(wildcard kernels/cuda/*.cu)
else
KERNELS_SRC := $(filter-out kernels/cuda/%,$(KERNELS_SRC))
ENGINE_SRC  := $(filter-out engine/cuda/%,$(ENGINE_SRC))
endif
HARNESS_SRC := $(filter-out harness/main.c harness/recorder/%,$(call find_c,harness))
ifneq ($(ARCH),x86_64)
KERNELS_SRC := $(filter-out %_avx2.c %_avxvnni.c %_avx512.c,$(KERNELS_SRC))
HARNESS_SRC := $(filter-out %_avx2.c %_avxvnni.c %_avx512.c,$(HARNESS_SRC))
endif
BENCH_SRC := $(filter-out bench/compare.c,$(wildcard bench/*.c))
TEST_SRC := $(wildcard tests/test_*.c)
# test_cuda_*: kernels run on the CPU; test_gpu_*: the backend on a driver that does so.
CUDA_TEST_SRC := $(wildcard tests/test_cuda_*.c tests/test_gpu_*.c)
ifeq ($(HAVE_CUDA),)
TEST_SRC := $(filter-out $(CUDA_TEST_SRC),$(TEST_SRC))
endif
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
# The NVTX recorder is a library of its own, which other programs load; it needs the headers of NVTX.
ifneq ($(filter -DHR_HAVE_NVTX,$(CPPFLAGS)),)
RECORDER_SRC := $(wildcard harness/recorder/*.c) harness/trace/chrome_trace.c
RECORDER     := $(BUILD)/libheadroom-nvtx.so
NVTX_APPS    := $(BUILD)/tests/nvtx_app $(BUILD)/tests/nvtx_module.so
endif
ALL_C    := $(KERNELS_SRC) $(ENGINE_SRC) $(HARNESS_SRC) harness/main.c $(TEST_SRC) $(FUZZ_SRC)

obj = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
LIBS  := $(BUILD)/libharness.a $(BUILD)/libengine.a $(BUILD)/libkernels.a
RECORDER_OBJ := $(patsubst %.c,$(BUILD)/pic/%.o,$(RECORDER_SRC))
TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(TEST_SRC))
FUZZ  := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))

.DEFAULT_GOAL := all
.PHONY: all demo test unit asan ubsan tsan fuzz-smoke format format-check tidy includes headers check-all install clean help \
        quality deps deps-test deps-check bench bench-smoke bench-compare FORCE
.DELETE_ON_ERROR:
# Objects of the tests stay: make would remove them as intermediate files, after the last line of the tests.
.SECONDARY:

all: deps ## build the program (build/headroom), installing what the build lacks
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/headroom $(RECORDER)
	@$(if $(HAVE_CUDA),,echo "headroom: built without the CUDA backend: there is no toolkit at $(CUDA) (CUDA=FOLDER)" >&2)
	@$(if $(RECORDER),,echo "headroom: built without NVTX ranges and libheadroom-nvtx.so: there is no $(CUDA)/include/nvtx3/nvToolsExt.h (CUDA=FOLDER)" >&2)

$(BUILD)/headroom: $(call obj,harness/main.c) $(LIBS)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/libkernels.a: $(call obj,$(KERNELS_SRC)) $(if $(HAVE_CUDA),$(CUDA_BUILD)/images.o)
$(BUILD)/libengine.a: $(call obj,$(ENGINE_SRC))
$(BUILD)/libharness.a: $(call obj,$(HARNESS_SRC))
$(LIBS):
	$(call say,AR,$@)
	@rm -f $@
	$(quiet)ar rcs $@ $(filter %.o,$^)

# -z nodelete: the tables of a program's modules point into the library as long as the program runs.
$(BUILD)/libheadroom-nvtx.so: $(RECORDER_OBJ)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-z,nodelete -o $@ $^ -lpthread
$(BUILD)/pic/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(quiet)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden -c -o $@ $<

# The commit goes into one generated header, rewritten only when it changes.
$(BUILD)/hr_commit.h: FORCE
	@mkdir -p $(BUILD); { printf '#define HR_COMMIT "%s"\n' "$$(git describe --always --dirty --abbrev=9 --exclude '*' 2>/dev/null || echo unknown)"; \
	  printf '#define HR_BUILD_NUMBER %s\n' "$$(git rev-list --count HEAD 2>/dev/null || echo 0)"; } > $@.new; \
	  cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(BUILD)/obj/harness/version.o: $(BUILD)/hr_commit.h
$(BUILD)/obj/harness/version.o: CPPFLAGS += -I$(BUILD)
# Texts inside the program (a pattern rule without a recipe would add nothing).
$(BUILD)/obj/harness/store/store_schema.o: results/schema.sql
$(BUILD)/obj/harness/report/report_plots.o: $(wildcard plots/*.gp)

# A change of flags or tools rebuilds all; so does a new or removed source, through the archives.
FLAGS_NOW := $(CC) $(CFLAGS) $(CPPFLAGS) $(KERNELS_SRC) $(ENGINE_SRC) $(HARNESS_SRC)
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD); echo '$(FLAGS_NOW)' | cmp -s - $@ || echo '$(FLAGS_NOW)' > $@

$(BUILD)/obj/%_avx2.o: CFLAGS += $(ISA_avx2)
$(BUILD)/obj/%_avxvnni.o: CFLAGS += $(ISA_avxvnni)
$(BUILD)/obj/%_avx512.o: CFLAGS += $(ISA_avx512)
# Kernels are compiled for speed, but not under sanitizers, where -O3 takes minutes a file.
$(BUILD)/obj/kernels/%.o: CFLAGS += $(if $(SAN),,-O3)
# A header of CUPTI includes <string> of C++ and uses nothing of it: an empty file of that name makes it C.
$(BUILD)/obj/engine/cuda/cupti_counters.o: CPPFLAGS += -Iengine/cuda/no_cxx
# Lines alone, no variables: following those through unrolled loops takes half of the compiler's time, and -O3 leaves few.
$(BUILD)/obj/kernels/cpu/%.o: CFLAGS += -g1
$(BUILD)/obj/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(quiet)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# Kernels for GPUs: one image a source, for all architectures, inside the program (tables of names, begins and ends in images.S).
CUDA_ARCHS ?= 80 90 100
NVCCFLAGS  += -std=c++17 -O3 -I. -isystem $(CUDA)/include --fatbin -Xptxas -warn-spills,-Werror --threads 2 -lineinfo \
              $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) -gencode arch=compute_100,code=compute_100
CUDA_NAMES := $(basename $(notdir $(CUDA_SRC)))
$(CUDA_BUILD)/%.fatbin: kernels/cuda/%.cu $(filter-out %/image.h %/occupancy.h,$(wildcard kernels/cuda/*.h kernels/cuda/*.cuh kernels/kv/*.h kernels/base/*.h))
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(quiet)$(NVCC) $(NVCCFLAGS) -o $@ $<
$(CUDA_BUILD)/images.S: FORCE
	@mkdir -p $(@D)
	@{ echo '.section .rodata'; for n in $(CUDA_NAMES); do printf '.balign 64\nimage_%s:\n.incbin "$(CUDA_BUILD)/%s.fatbin"\n.byte 0\nname_%s: .asciz "%s"\n' $$n $$n $$n $$n; done; \
	  echo '.section .data.rel.ro,"aw"'; echo '.balign 8'; echo '.globl hr_cuda_images'; echo 'hr_cuda_images:'; \
	  for n in $(CUDA_NAMES); do echo ".quad name_$$n, image_$$n"; done; echo '.quad 0, 0'; echo '.section .note.GNU-stack,"",%progbits'; } >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(CUDA_BUILD)/images.o: $(CUDA_BUILD)/images.S $(foreach n,$(CUDA_NAMES),$(CUDA_BUILD)/$(n).fatbin)
	$(quiet)$(CC) -c -o $@ $<

# The same kernels, run on the CPU: tests/cuda_on_cpu has the machine, and libraries that stand in for those of CUDA.
ifneq ($(HAVE_CUDA),)
# Kernels and libraries are built with sanitizers, the machine is not: what it does is no access of a kernel (nor a memcpy of libc's).
SHIM_SAN   = $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all)
SHIM_CU    = -include tests/cuda_on_cpu/shim_device.hpp -x c++
SHIM_FLAGS = -std=c++17 -D_Thread_local=__thread -DHR_CUDA_ON_CPU -D_GNU_SOURCE -I. $(if $(filter %.cu,$<),$(SHIM_CU)) -isystem $(CUDA)/include -MMD -MP -O1 -g1 -fPIC -fno-strict-aliasing -Wall -Wno-unknown-pragmas -Wno-parentheses -Werror $(SHIM_SAN)
$(BUILD)/shim/shim_%.o: SHIM_SAN = -O2 -fno-tree-loop-distribute-patterns $(if $(findstring address,$(SAN)),-DHR_SHIM_ASAN) $(if $(findstring thread,$(SAN)),-DHR_SHIM_TSAN)
SHIM_OBJ  := $(patsubst kernels/cuda/%.cu,$(BUILD)/shim/kernels/%.o,$(CUDA_SRC)) $(patsubst tests/cuda_on_cpu/%.cpp,$(BUILD)/shim/%.o,$(wildcard tests/cuda_on_cpu/shim_*.cpp))
SHIM_TEST_OBJ := $(BUILD)/shim/test_kernels.o
# fake_NAME.cpp and fake_NAME_*.cpp make libNAME_fake.so.
fake_obj  = $(patsubst tests/cuda_on_cpu/%.cpp,$(BUILD)/shim/%.o,$(wildcard tests/cuda_on_cpu/fake_$(1).cpp tests/cuda_on_cpu/fake_$(1)_*.cpp))
FAKES     := $(foreach n,cuda cublaslt nvml cupti,$(if $(call fake_obj,$(n)),$(BUILD)/tests/lib$(n)_fake.so))
$(BUILD)/shim/kernels/%.o: kernels/cuda/%.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(SHIM_FLAGS) -c -o $@ $<
$(SHIM_TEST_OBJ): tests/cuda_on_cpu/test_kernels.cu $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(SHIM_FLAGS) -c -o $@ $<
$(BUILD)/shim/%.o: tests/cuda_on_cpu/%.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(SHIM_FLAGS) -c -o $@ $<
$(BUILD)/libcuda_shim.a: $(SHIM_OBJ) $(SHIM_TEST_OBJ)
	$(call say,AR,$@)
	@rm -f $@
	$(quiet)ar rcs $@ $^
# Kernels with planted bugs are built by the tests themselves: how (planted.sh).
$(BUILD)/shim/tools.sh: $(BUILD)/flags
	@mkdir -p $(@D)
	@{ echo "compile='$(CXX)' compile_flags='$(SHIM_CU) $(filter-out -MMD -MP,$(SHIM_FLAGS))'"; \
	  echo "link='$(CC) $(CFLAGS) $(LDFLAGS)' libraries='$(LIBS) $(LDLIBS) -lcmocka -lstdc++' sanitizers='$(SAN)'"; } >$@
# The tests of kernels and planted bugs under each sanitizer, beside those of this build: only what a GPU would run is built with it.
.PHONY: cuda-kernel-tests
KERNEL_TESTS := $(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_cuda_*.c))
cuda-kernel-tests: $(KERNEL_TESTS) $(BUILD)/shim/tools.sh
# A build with a sanitizer leaves both to the ordinary one, which runs them with every sanitizer.
ifeq ($(SAN),)
CUDA_SCRIPTS := tests/cuda_on_cpu/planted.sh tests/cuda_on_cpu/sanitized.sh
CUDA_SCRIPTS_NEED := $(BUILD)/shim/tools.sh cuda-address cuda-thread
else
# Kernels under a sanitizer take minutes in whole engines, too.
TESTS := $(filter-out $(KERNEL_TESTS) $(BUILD)/tests/test_gpu_%,$(TESTS))
endif
.PHONY: cuda-address cuda-thread
cuda-address cuda-thread: cuda-%: $(LIBS)
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/cuda-$* SAN=$(if $(filter address,$*),address$(comma)undefined,$*) OPT=-O1 LIBS='$(LIBS)' cuda-kernel-tests
# libcuda_fake.so, libcublaslt_fake.so, libnvml_fake.so, libcupti_fake.so; only the driver holds the kernels. nodelete: like a driver
# they stay, as signal handlers and what runs at exit do.
$(foreach n,cuda cublaslt nvml cupti,$(eval $(BUILD)/tests/lib$(n)_fake.so: $(call fake_obj,$(n))))
$(BUILD)/tests/libcuda_fake.so: $(SHIM_OBJ)
$(FAKES):
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CXX) $(if $(SAN),-fsanitize=$(SAN)) -shared -Wl,-z,defs,-z,nodelete -o $@ $(sort $(filter %.o,$^)) -ldl -lm -lpthread
$(BUILD)/tests/test_cuda_%: $(BUILD)/obj/tests/test_cuda_%.o $(LIBS) $(BUILD)/libcuda_shim.a
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $< -Wl,--whole-archive $(BUILD)/libcuda_shim.a -Wl,--no-whole-archive $(LIBS) $(LDLIBS) -lcmocka -lstdc++
$(patsubst tests/%.c,$(BUILD)/tests/%,$(wildcard tests/test_gpu_*.c)): | $(FAKES) $(BUILD)/headroom
-include $(SHIM_OBJ:.o=.d) $(SHIM_TEST_OBJ:.o=.d) $(patsubst tests/cuda_on_cpu/%.cpp,$(BUILD)/shim/%.d,$(wildcard tests/cuda_on_cpu/fake_*.cpp))
endif

# The tests of kernels once more, in one program that launches them on a GPU: those that have no kernels of their own, as the
# tests of the machine do.
GPU_UNITS := $(if $(HAVE_CUDA),$(patsubst tests/%.c,%,$(shell grep -L test_kernels.h tests/test_cuda_*.c)))
$(BUILD)/gpu/gpu_units_list.h: FORCE
	@mkdir -p $(@D); echo '#define HR_GPU_UNITS(X) $(foreach u,$(GPU_UNITS),X($(u)))' >$@.new; cmp -s $@.new $@ && rm $@.new || mv $@.new $@
$(BUILD)/gpu/obj/%.o: tests/%.c $(BUILD)/flags $(BUILD)/gpu/gpu_units_list.h
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(quiet)$(CC) $(CPPFLAGS) -DHR_ON_GPU $(if $(filter test_%,$*),-Dmain=$*_main) -I$(BUILD)/gpu $(CFLAGS) -c -o $@ $<
$(BUILD)/gpu-units: $(patsubst %,$(BUILD)/gpu/obj/%.o,$(GPU_UNITS) gpu_machine gpu_units) $(LIBS)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka
-include $(wildcard $(BUILD)/gpu/obj/*.d)

# Kernels for GPUs timed one by one, beside cuBLASLt.
GPU_BENCH_SRC := $(if $(HAVE_CUDA),$(wildcard bench/gpu/*.c))
$(BUILD)/gpu-bench: $(call obj,$(GPU_BENCH_SRC)) $(BUILD)/libengine.a $(BUILD)/libkernels.a
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/tests/test_gpu_check: | $(BUILD)/headroom $(BUILD)/gpu-units $(BUILD)/gpu-bench $(FAKES)

# The micro-benchmarks: C families, and one C++ file that gives them to Google Benchmark. No part of `make`.
$(BUILD)/obj/bench/shim.o: bench/shim.cc $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(CPPFLAGS) -std=c++17 $(OPT) -g $(WARN) -c -o $@ $<
$(BUILD)/obj/bench/bench_main.o: $(BUILD)/hr_commit.h
$(BUILD)/obj/bench/bench_main.o: CPPFLAGS += -I$(BUILD)
$(BUILD)/bench: $(call obj,$(BENCH_SRC)) $(BUILD)/obj/bench/shim.o $(BUILD)/libengine.a $(BUILD)/libkernels.a
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -lbenchmark -lstdc++ $(LDLIBS)
$(BUILD)/bench-compare: $(call obj,bench/compare.c kernels/base/pairs.c)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ljansson -lm

$(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(LIBS)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -lcmocka

# Programs that the tests run under the recorder: NVTX and nothing of Headroom.
$(BUILD)/tests/nvtx_app: $(BUILD)/obj/tests/nvtx_app.o
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ -ldl
$(BUILD)/tests/nvtx_module.so: $(BUILD)/pic/tests/nvtx_module.o
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) $(LDFLAGS) -shared -o $@ $^ -ldl
$(BUILD)/tests/test_recorder: | $(RECORDER) $(NVTX_APPS)
$(BUILD)/tests/test_range_names $(BUILD)/tests/test_capture: | $(RECORDER) $(BUILD)/headroom

-include $(patsubst %.o,%.d,$(RECORDER_OBJ) $(BUILD)/pic/tests/nvtx_module.o $(BUILD)/obj/tests/nvtx_app.o $(call obj,$(ALL_C) $(BENCH_SRC) $(GPU_BENCH_SRC) bench/compare.c) $(BUILD)/obj/bench/shim.o)

deps:
	@.ci/deps.sh build
deps-test:
	@.ci/deps.sh build test

demo: all ## measure this machine for about two minutes and write a report
	@.ci/deps.sh demo
	@tests/demo.sh $(BUILD)/headroom

test: deps-test ## build and run every test; the last line is "N passed, M failed"
	@$(MAKE) --no-print-directory $(JOBS) unit
unit: $(BUILD)/headroom $(RECORDER) $(if $(SAN),,$(FAKES)) $(TESTS) $(if $(CUDA_SCRIPTS),$(BUILD)/shim/tools.sh)
	@$(if $(HAVE_CUDA),,echo "skipped: the tests of the CUDA backend: there is no toolkit at $(CUDA) (CUDA=FOLDER)")
	@tests/run_tests.sh $(BUILD) $(TESTS) $(firstword $(CUDA_SCRIPTS))

.PHONY: cuda-test cuda-unit
cuda-test: deps-test ## the CUDA backend without a GPU: every kernel and the whole engine, run on the CPU
	@$(if $(HAVE_CUDA),$(MAKE) --no-print-directory $(JOBS) cuda-unit,echo "cuda-test: skipped: there is no toolkit at $(CUDA) (CUDA=FOLDER)"; echo "0 passed, 0 failed")
cuda-unit: $(BUILD)/headroom $(FAKES) $(patsubst tests/%.c,$(BUILD)/tests/%,$(CUDA_TEST_SRC)) $(CUDA_SCRIPTS_NEED)
	@tests/run_tests.sh $(BUILD) $(patsubst tests/%.c,$(BUILD)/tests/%,$(CUDA_TEST_SRC)) $(CUDA_SCRIPTS)

.PHONY: cuda-resources
cuda-resources: ## registers, stack and shared memory of the kernels for GPUs as the table that tests compare with
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/tests/test_gpu_static
	@$(BUILD)/tests/test_gpu_static --write tests/golden/cuda_resources.tsv

# Parts of a run on the device (DEVICE=cuda:0); see tests/gpu_check.sh. The programs carry the images of all kernels: CUDA_ARCHS=90 makes
# them smaller.
.PHONY: gpu-check gpu-check-build
gpu-check-build: deps-test ## build what gpu-check runs
	@$(if $(HAVE_CUDA),$(MAKE) --no-print-directory $(JOBS) $(BUILD)/headroom $(BUILD)/gpu-units $(BUILD)/gpu-bench,echo "gpu-check: there is no toolkit at $(CUDA) (CUDA=FOLDER)" >&2; exit 2)
gpu-check: gpu-check-build ## a machine with a GPU: kernels against the CPU, roof, benchmarks, sweeps, in at most 8 minutes
	@tests/gpu_check.sh $(BUILD)

asan: deps-test ## the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@HR_TEST_QUICK=1 $(MAKE) --no-print-directory $(JOBS) unit BUILD=build-asan SAN=address,undefined OPT=-O1
ubsan: deps-test ## the tests under UndefinedBehaviorSanitizer alone
	@HR_TEST_QUICK=1 $(MAKE) --no-print-directory $(JOBS) unit BUILD=build-ubsan SAN=undefined OPT=-O1
tsan: deps-test ## the tests under ThreadSanitizer
	@HR_TEST_QUICK=1 $(MAKE) --no-print-directory $(JOBS) unit BUILD=build-tsan SAN=thread OPT=-O1

# All benchmarks, or those that BENCH_FILTER names; BENCH_FLAGS are more flags of Google Benchmark. Ceilings are measured
# just before.
BENCH_FILTER ?= .
BENCH_FLAGS  ?=
.PHONY: bench-build
bench-build: deps
	@.ci/deps.sh build bench
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/headroom $(BUILD)/bench $(BUILD)/bench-compare
bench: bench-build ## time every kernel over layers of real models (long; BENCH_FILTER=REGEX); writes build/bench.json
	@$(BUILD)/headroom roof --quick --json --db none --out $(BUILD)/roof.json
	@env -u OPENBLAS_CORETYPE $(BUILD)/bench --benchmark_filter='$(BENCH_FILTER)' --benchmark_min_time=0.05 \
	  --benchmark_out=$(BUILD)/bench.json --benchmark_out_format=json $(BENCH_FLAGS)
bench-smoke: ## every kernel once on small shapes, checked against its reference
	@.ci/deps.sh build bench
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/bench
	@bench/smoke.sh $(BUILD)
bench-compare: bench-build ## BASE=<commit>: same, faster or slower, kernel by kernel (BENCH_FILTER=REGEX, PAIRS=13)
	@bench/compare.sh '$(BASE)' $(BUILD) '$(BENCH_FILTER)' $(or $(PAIRS),13) $(BENCH_FLAGS)

# What the probes cost while nobody listens: against a build without them, in pairs of processes. PROBE_FLAGS are more flags
# of `headroom observe`, as -m MODEL.
PROBE_FLAGS ?=
.PHONY: probe-cost
probe-cost: deps ## what probes, recorder and NVTX cost: also against a build without probes (minutes; PROBE_FLAGS='-m MODEL')
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/headroom
	@$(MAKE) --no-print-directory $(JOBS) BUILD=build-noprobes NOPROBES=1 build-noprobes/headroom
	@$(BUILD)/headroom observe --without build-noprobes/headroom --pairs 30 $(PROBE_FLAGS)

# make itself ends with 2 whatever the verdict: harness/ci/nightly.sh has the exit code of the gate, and $(BUILD)/nightly/exit_code.
.PHONY: nightly
nightly: deps ## BASE=<commit>: is this build slower? 20 cells in 13 pairs, JUnit and report in build/nightly (20 minutes)
	@$(if $(BASE),,echo 'nightly: which commit? make nightly BASE=HEAD~1' >&2; exit 2)
	@.ci/deps.sh demo
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/headroom
	@HEADROOM=$(BUILD)/headroom OUT=$(BUILD)/nightly harness/ci/nightly.sh '$(BASE)'

# valgrind knows no AVX-512 and says so by CPUID: these programs choose AVX2 under it.
VALGRIND_TESTS := $(addprefix $(BUILD)/tests/,test_panel test_acts test_matmul test_vec test_attention test_kv test_dtype)
valgrind: ## the tests of the kernels under valgrind, as on a CPU with AVX2 (minutes)
	@.ci/deps.sh build test valgrind
	@$(MAKE) --no-print-directory $(JOBS) $(VALGRIND_TESTS)
	@for t in $(VALGRIND_TESTS); do HR_TEST_QUICK=1 valgrind -q --error-exitcode=9 $$t >$(BUILD)/valgrind.log 2>&1 || \
	  { cat $(BUILD)/valgrind.log; exit 1; }; echo "$$(basename $$t): clean"; done
.PHONY: valgrind

quality: deps-test ## perplexity of each quantization on real weights, held to bounds (minutes)
	@$(MAKE) --no-print-directory $(JOBS) $(BUILD)/headroom
	@tests/quality.sh $(BUILD)

fuzz-smoke: ## every fuzz target for a short while from its seed corpus (FUZZ_SECONDS=20)
	@.ci/deps.sh build fuzz
	@$(MAKE) --no-print-directory $(JOBS) fuzz-run BUILD=build-fuzz CC=clang SAN=address,undefined,fuzzer-no-link OPT=-O1
.PHONY: fuzz-run
fuzz-run: $(FUZZ)
	@tests/fuzz/run_fuzz.sh $(BUILD) $(or $(FUZZ_SECONDS),20)
$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(LIBS)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CC) $(CFLAGS) -fsanitize=fuzzer,address,undefined -o $@ $^ $(LDLIBS)

SOURCES_ALL := $(sort $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.cpp' '*.hpp' 2>/dev/null))
format: ## rewrite the sources in the project's format
	@.ci/deps.sh lint
	@clang-format -i $(SOURCES_ALL)
format-check: includes headers ## format, direction of includes, headers that compile alone
	@.ci/deps.sh lint
	@clang-format --dry-run -Werror $(SOURCES_ALL) && echo "format: ok"
includes: ## fails when an include goes upward
	@tests/check_includes.sh
ISA_H := %_avx2.h %_avxvnni.h %_avx512.h $(addprefix kernels/cpu/panel_,int_body.h gemm_body.h gemv_body.h)
CUDA_H := kernels/cuda/cu.h $(if $(HAVE_CUDA),,engine/cuda/%)
compile_headers = printf '%s\n' $(1) | xargs -P 2 -n 1 $(CC) $(filter-out -MMD -MP,$(CPPFLAGS)) $(CFLAGS) $(2) -fsyntax-only -x c
headers: deps ## every header compiles alone
	@$(call compile_headers,$(filter-out $(ISA_H) $(CUDA_H),$(filter %.h,$(SOURCES_ALL))))
	@$(if $(filter x86_64,$(ARCH)),$(call compile_headers,$(filter $(ISA_H),$(SOURCES_ALL)),$(ISA_avx512)))
	@echo "headers: ok"
tidy: ## clang-tidy on the program's sources, by the checks in .clang-tidy (minutes)
	@.ci/deps.sh build lint
	@$(MAKE) --no-print-directory $(BUILD)/hr_commit.h
	@printf '%s\n' $(KERNELS_SRC) $(ENGINE_SRC) $(HARNESS_SRC) harness/main.c $(wildcard $(if $(RECORDER),harness/recorder/*.c)) | xargs -P 2 -n 8 sh -c 'clang-tidy --quiet "$$@" -- \
	  $(filter-out -MMD -MP,$(CPPFLAGS)) -I$(BUILD) -Iengine/cuda/no_cxx -std=c17 $(ISA_avx512) -mavxvnni 2>/dev/null' tidy
	@echo "tidy: ok"

check-all: ## everything: test, format-check, tidy, asan, ubsan, tsan, valgrind, fuzz-smoke, quality
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory format-check tidy asan ubsan tsan valgrind fuzz-smoke quality
	@echo "check-all: ok"

install: all ## install the program under PREFIX (default /usr/local)
	install -D -m 755 $(BUILD)/headroom $(DESTDIR)$(PREFIX)/bin/headroom
	$(if $(RECORDER),install -D -m 755 $(RECORDER) $(DESTDIR)$(PREFIX)/lib/headroom/libheadroom-nvtx.so)

clean: ## remove what was built
	rm -rf build build-noprobes build-asan build-ubsan build-tsan build-fuzz

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16
