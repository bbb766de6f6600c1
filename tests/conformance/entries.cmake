# SPDX-License-Identifier: Apache-2.0
# The kit against the drivers of this build: one entry per driver and mode.
set(_preload "")
set(_runner "")
if(NPU_KIT_FROM)
  add_executable(npu_conformance IMPORTED GLOBAL)
  set_target_properties(npu_conformance PROPERTIES IMPORTED_LOCATION ${NPU_KIT_FROM})
  # A sanitizer has to be loaded before the program that loads an instrumented driver.
  foreach(_sanitizer address thread)
    if(NPU_SANITIZE MATCHES ${_sanitizer})
      string(SUBSTRING ${_sanitizer} 0 1 _letter)
      execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=lib${_letter}san.so
                      OUTPUT_VARIABLE _library OUTPUT_STRIP_TRAILING_WHITESPACE)
      set(_preload "LD_PRELOAD=${_library}")
      if(_sanitizer STREQUAL thread)
        # TSAN of gcc 12 knows no address space as random as newer kernels make it.
        set(_runner setarch -R)
      endif()
    endif()
  endforeach()
endif()

# Small memory: a test fills the device.
function(npu_conformance_test name driver)
  add_test(NAME conformance.${name}
    COMMAND ${_runner} $<TARGET_FILE:npu_conformance> --driver $<TARGET_FILE:npu_${driver}> --gtest_brief=1)
  set_tests_properties(conformance.${name} PROPERTIES
    ENVIRONMENT "NPU_HOST_MEMORY=256M;NPU_HOST_KERNELS=all;${_preload};${ARGN}"
    SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS conformance)
  if(NOT NPU_KIT_FROM)
    add_dependencies(npu_conformance npu_${driver})
  endif()
endfunction()

npu_conformance_test(host host)
npu_conformance_test(host-async host NPU_HOST_ASYNC=1)
if(NOT NPU_SANITIZE MATCHES "thread")
  # Devices, protected memory and instruction sets make no difference to what threads share.
  npu_conformance_test(null null)
  npu_conformance_test(host-protect-8 host NPU_HOST_PROTECT=1 NPU_HOST_DEVICES=8)
  # What `host` uses is the best this machine has.
  foreach(isa baseline avx2)
    npu_conformance_test(host-${isa} host NPU_HOST_ISA=${isa})
  endforeach()
endif()

# The discrete driver: memory that host code cannot touch, asynchronous streams.
npu_conformance_test(discrete discrete NPU_DISCRETE_COMM=1 NPU_DISCRETE_PROFILER=1)
# Only the group that the interface is for: the rest is as above.
function(npu_capture_test name mode)
  add_test(NAME conformance.${name}
    COMMAND ${_runner} $<TARGET_FILE:npu_conformance> --driver $<TARGET_FILE:npu_discrete>
            --gtest_brief=1 --gtest_filter=capture.*)
  set_tests_properties(conformance.${name} PROPERTIES
    ENVIRONMENT "NPU_DISCRETE_CAPTURE=${mode};${_preload}" TIMEOUT 120 LABELS conformance ${ARGN})
endfunction()
npu_capture_test(discrete-capture 1)
if(NPU_SANITIZE)
  # What follows judges the kit, which is not instrumented.
  return()
endif()

# The kit itself, against drivers that misbehave on purpose and drivers with
# rights of their own (tests/drivers/wrong.h): what it has to print, or to bear.
set(_seconds 120)
function(npu_kit_test name wrong filter expected)
  add_test(NAME kit.${name}
    COMMAND npu_conformance --driver $<TARGET_FILE:npu_faulty> --gtest_brief=1
            --gtest_filter=${filter} --seconds ${_seconds})
  set_tests_properties(kit.${name} PROPERTIES
    ENVIRONMENT "NPU_FAULTY_WRONG=${wrong};NPU_HOST_MEMORY=256M;NPU_HOST_KERNELS=all;NPU_FAULTY_BASE=$<TARGET_FILE:npu_host>;${ARGN}"
    TIMEOUT 300 LABELS conformance)
  if(expected)
    set_tests_properties(kit.${name} PROPERTIES PASS_REGULAR_EXPRESSION "${expected}")
  endif()
endfunction()

add_test(NAME kit.catches-records-twice
  COMMAND npu_conformance --driver $<TARGET_FILE:npu_discrete> --gtest_brief=1
          --gtest_filter=profiler.*)
set_tests_properties(kit.catches-records-twice PROPERTIES
  ENVIRONMENT NPU_DISCRETE_PROFILER=twice TIMEOUT 60 LABELS conformance
  PASS_REGULAR_EXPRESSION "flush gives the same records twice")
npu_capture_test(catches-eager-capture eager
  PASS_REGULAR_EXPRESSION "FAILED  . capture.NothingRunsBeforeALaunch")
npu_kit_test(catches-epilogue epilogue kind.gemm "FAILED  . kind.gemm")
npu_kit_test(catches-beta beta kind.gemm "FAILED  . kind.gemm")
npu_kit_test(catches-unwritten-pre optional kind.gemm "FAILED  . kind.gemm")
npu_kit_test(catches-late-copies late memory.Copies*
  "copy_to_host to ordinary memory is not over.*copy_on_device, seen by its stream is not over")
foreach(slot stream.query stream.synchronize device.synchronize)
  npu_kit_test(catches-swallowed-${slot} swallow=${slot} errors.OfQueuedWork*
    "an index out of range, then ${slot}" NPU_HOST_ASYNC=1)
endforeach()
npu_kit_test(catches-no-without-reason quiet_no kind.gemm "declines and gives no reason")
npu_kit_test(catches-host-scalars number kind.binary "with a host scalar as other")
npu_kit_test(catches-no-wait no_wait stream.WaitEventWaitsForALateStream
  "ran before the event's own stream" NPU_HOST_ASYNC=1)
npu_kit_test(catches-early-query idle stream.QueryIsNotReady* "work is still running"
  NPU_HOST_ASYNC=1)
npu_kit_test(catches-not-inline inline stream.InlineWorkIsDoneAtOnce
  "says NPU_DRIVER_INLINE, and a host function has not run.*a kernel is not over" NPU_HOST_ASYNC=1
  NPU_HOST_DELAY_US=200)
npu_kit_test(bears-inline inline stream.InlineWorkIsDoneAtOnce "")
npu_kit_test(catches-gemm-in-place in_place kind.gemm "in place it gives another answer")
npu_kit_test(catches-thrown throw=roll kind.roll "C.. exception .*thrown across the contract")
npu_kit_test(catches-no-rows no_rows abi.CapabilitiesAreSane "NPU_DTYPES_ROWS and no dtype_rows")
npu_kit_test(catches-dense-as-contiguous dense kind.unary "FAILED  . kind.unary")
npu_kit_test(catches-unrounded-registers program program.Registers* "f16 2048 . 1 - 2048")
npu_kit_test(catches-unrounded-rows program program.*Rows* "rows of .*16: .* instead of")
npu_kit_test(catches-short-rows short_rows program.RowsAreReduced* "mean 0 element 0 is .* instead of")
# Dtypes that differ, tests/conformance/mixed_test.cpp.
npu_kit_test(catches-mixed-dtypes mixed mixed.*
  "binary.add of i32 and i64 into i64, computed in i64: .* instead of")
npu_kit_test(catches-unconverted-inputs unconverted mixed.*
  "of i32 and bf16 into bf16, computed in bf16: 257 and .* instead of")
npu_kit_test(catches-unrounded-results unrounded mixed.* "of i32 and i32 into i64, computed in i32")
npu_kit_test(catches-rounded-numbers number_half mixed.* "and the number 65536 gives")
npu_kit_test(catches-one-input-dtype one_dtype mixed.* "FAILED  . mixed.OneInputDtypeIsALimit")
npu_kit_test(catches-a-row-of-dtypes mixed_row kind.gemm "FAILED  . kind.gemm")
npu_kit_test(catches-nan nan map.* "maximum of f32: element 1 is inf instead of nan")
npu_kit_test(catches-tails tail kind.unary "FAILED  . kind.unary")
npu_kit_test(catches-idle-device last_device kind.gemm "on device 1 it gives another answer"
  NPU_HOST_DEVICES=2)
npu_kit_test(catches-ignored-limit limit kind.gemm "bytes, and workspace_limit says")
npu_kit_test(catches-greedy-tune tune kind.gemm "tune wants a workspace of")
npu_kit_test(bears-rows rows abi.*:kind.gemm "")
# Contract 1.2.
npu_kit_test(catches-untrue-platform platform abi.PlatformIsTrue
  "and host code cannot read device memory" NPU_FAULTY_HOST_ACCESS=none)
npu_kit_test(catches-lazy-kernels lazy kind.unary "run took memory")
npu_kit_test(catches-failing-prepare unprepared kind.unary "prepare fails")
npu_kit_test(bears-prepare prepared kind.unary:kind.binary:kind.copy:fill.* "")
npu_kit_test(catches-scales-in-a-plan scales abi.PlansOfGemm* "planned with alpha 2")
npu_kit_test(catches-coarse-partials partials abi.HalfPartials* "FAILED  . abi.HalfPartials")
npu_kit_test(catches-derivative-epilogue derivative kind.gemm "FAILED  . kind.gemm")
npu_kit_test(catches-narrow-statistics narrow abi.WideStatistics* "'mean' cannot be float32")
npu_kit_test(catches-unwritten-running-values optional kind.batch_norm "FAILED  . kind.batch_norm")
npu_kit_test(catches-unrepeatable-numbers unrepeatable random.Own* "equal seed and offset, other")
npu_kit_test(catches-stuck-numbers stuck random.Own* "another offset gives the same numbers")
npu_kit_test(bears-own-numbers own_random random.* "")
npu_kit_test(catches-stuck-mask mask random.AttentionsOwn* "another seed, the same mask")
npu_kit_test(bears-own-mask own_mask random.AttentionsOwn* "")
npu_kit_test(catches-if-in-copy copy_if kind.copy "the plan of copy and fill says yes or no")
foreach(_part geglu.active geglu_grad.active quantise.zero quantise.smooth quantise.symmetric dequantise.zero
              dequantise.bias dequantise.token_scale paged_attention.window paged_attention.softcap)
  string(REGEX REPLACE "[.].*" "" _kind ${_part})
  npu_kit_test(catches-forgotten-${_part} forgets=${_part} kind.${_kind} "FAILED  . kind.${_kind}")
endforeach()
# Drivers of older minors are judged by the rules of their minor.
set(_older abi.*:device.*:stream.*:fill.*:kind.copy:kind.unary:kind.binary:kind.gemm:kind.attention:kind.batch_norm_stats)
npu_kit_test(bears-1.0 "" ${_older} "" NPU_FAULTY_MINOR=0)
npu_kit_test(bears-1.1 "" ${_older} "" NPU_FAULTY_MINOR=1)
set(_planned kind.gemm:kind.conv:kind.sort:kind.masked_select:kind.cat:fill.*:copy.*:kind.copy)
npu_kit_test(bears-few-dimensions ndim=2 ${_planned} "")
npu_kit_test(bears-if-cast if_cast ${_planned} "")
npu_kit_test(bears-if-contiguous if_contiguous ${_planned} "")
npu_kit_test(bears-no no=1000 ${_planned} "")
npu_kit_test(names-the-crash segv=gemm kind.gemm
  "ended the process .SIGSEGV. in test kind.gemm, case gemm.gemm .*seed [0-9]+")
npu_kit_test(names-the-abort abort=softmax kind.softmax
  "ended the process .SIGABRT. in test kind.softmax, case softmax")
set(_seconds 1)
npu_kit_test(names-the-hang hang=roll kind.roll
  "does not finish test kind.roll, case roll.roll .*seed [0-9]+")

# Communicators that are wrong.
set(_seconds 120)
function(npu_kit_comm_test wrong filter expected)
  add_test(NAME kit.catches-comm-${wrong}
    COMMAND npu_conformance --driver $<TARGET_FILE:npu_discrete> --gtest_brief=1
            --gtest_filter=${filter} --seconds ${_seconds})
  set_tests_properties(kit.catches-comm-${wrong} PROPERTIES
    ENVIRONMENT "NPU_DISCRETE_COMM=1;NPU_DISCRETE_COMM_WRONG=${wrong}"
    TIMEOUT 300 LABELS conformance PASS_REGULAR_EXPRESSION "${expected}")
endfunction()
npu_kit_comm_test(sum comm.ReductionsAreRight "all_reduce, reduction 0.*expected")
npu_kit_comm_test(hop comm.* "rounded once or at every hop, not both")
npu_kit_comm_test(early comm.IsOrderedWithItsStream "not in the order of its stream")
set(_seconds 1)
npu_kit_comm_test(abort comm.AbortEnds* "does not finish test comm.AbortEnds")

# Drivers that no test could run on.
function(npu_kit_refuses driver expected)
  add_test(NAME kit.refuses-${driver}
    COMMAND npu_conformance --driver $<TARGET_FILE:npu_${driver}>)
  set_tests_properties(kit.refuses-${driver} PROPERTIES
    TIMEOUT 60 LABELS conformance PASS_REGULAR_EXPRESSION "${expected}")
endfunction()
npu_kit_refuses(tiny_no_slots "required slots are missing: stream.host_call")
npu_kit_refuses(tiny_no_table "required slots are missing: event")
npu_kit_refuses(tiny_no_size "says size 0")
npu_kit_refuses(tiny_no_name "has no name")
npu_kit_refuses(tiny_gives_null "left .out NULL")
npu_kit_refuses(tiny_major "built for contract 2")
npu_kit_refuses(tiny_explicit "memory.host_open memory.host_close")
