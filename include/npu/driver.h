/* SPDX-License-Identifier: Apache-2.0 */
/* The driver contract: what a shared library must provide to be an npu device.
 *
 * A driver exports one symbol, npu_driver_entry. It receives the host side's
 * services and hands back one npu_driver: five tables of function pointers.
 * Plain C; no C++ type and no exception crosses this line. Operators are in
 * npu/op.h. Read docs/driver-guide.md first, and copy drivers/null.
 *
 * Words used below. "Queue" means put work on a stream and return; "wait" means
 * a stream waits; "synchronize" means the calling host thread waits.
 * "Required" slots must not be null; a null optional slot means its Default.
 */
#ifndef NPU_DRIVER_H
#define NPU_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "npu/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- version ---- */

/* Major must match. Minor is additive: tables only grow at their end, so a
 * driver of an older minor is accepted and its missing tail reads as null. A
 * driver of a newer minor than the host's looks at host_abi in its entry, and
 * writes no more of a struct than the caller's `size` says. */
#define NPU_ABI_MAJOR 1u
#define NPU_ABI_MINOR 2u
#define NPU_ABI_MAKE(major, minor) \
  (((uint32_t)(major) << 16) | (uint32_t)(minor))
#define NPU_ABI NPU_ABI_MAKE(NPU_ABI_MAJOR, NPU_ABI_MINOR)

#if defined(_WIN32)
#define NPU_EXPORT __declspec(dllexport)
#else
#define NPU_EXPORT __attribute__((visibility("default")))
#endif

/* ---- handles ---- */

/* Devices are numbered 0 .. count-1; no call depends on a current device. */
typedef int32_t npu_device;
typedef struct npu_stream_s* npu_stream; /* NULL is never a stream */
typedef struct npu_event_s* npu_event;
struct npu_call;    /* npu/op.h */
struct npu_verdict; /* npu/op.h */
struct npu_op_caps; /* npu/op.h */
struct npu_mailbox; /* npu/mailbox.h */
struct npu_driver;

/* ---- what the host side offers a driver ---- */

#define NPU_LOG_DEBUG 0
#define NPU_LOG_INFO 1
#define NPU_LOG_WARNING 2
#define NPU_LOG_ERROR 3

/* One piece [begin, end) of a parallel_for. Returns NPU_OK or an error. */
typedef npu_status (*npu_range_fn)(void* context, int64_t begin, int64_t end);

/* Valid for the life of the process. Any thread may call any of them. */
typedef struct npu_host_services {
  uint32_t size; /* of this struct, as the host side was built */
  uint32_t abi;

  /* Lowest level the user asked for; below it, do not format a message. */
  int32_t (*log_level)(void);
  void (*log)(int32_t level, const char* text);

  /* Store this thread's last error text (copied). NULL clears it. */
  void (*set_error)(const char* text);
  const char* (*last_error)(void);

  /* Run fn over [0, n) in pieces of at least `grain`, maybe on many threads;
   * returns when all are done, with the first error. Serial when called from
   * inside itself or from a stream's own worker thread. */
  npu_status (*parallel_for)(
      int64_t n, int64_t grain, npu_range_fn fn, void* context);

  /* Named ranges for a profiler; cheap when none is running. */
  void (*range_push)(const char* name);
  void (*range_pop)(void);

  /* Report device memory the driver took (+) or gave back (-) for itself. */
  void (*account)(npu_device device, int64_t bytes, const char* what);

  /* Say that the calling thread is a stream's worker: parallel_for is serial
   * on it from now on, because it must not take part in the caller's pool. */
  void (*stream_worker)(void);

  /* The tables of a loaded driver, defaults filled in; NULL when no driver of
   * that name is loaded. For operator packs. Since 1.1. */
  const struct npu_driver* (*find_driver)(const char* name);

  /* The platform beside the CPU that PyTorch's own kernels are built for:
   * NPU_PLATFORM_CUDA, or "". A driver of that platform may leave a kind to
   * them where they are faster. NULL: not known. Since 1.2. */
  const char* (*torch_platform)(void);
} npu_host_services;

/* ---- device ---- */

#define NPU_HOST_ACCESS_NONE 0u     /* host code must not touch it */
#define NPU_HOST_ACCESS_COHERENT 1u /* host code may, on an idle stream */
#define NPU_HOST_ACCESS_EXPLICIT 2u /* between host_open and host_close */

typedef struct npu_device_properties {
  uint32_t size; /* set by the caller */
  uint32_t host_access;
  char name[64];
  char architecture[32];
  uint8_t uuid[16];
  uint64_t total_memory;
  uint64_t max_single_allocation; /* 0 = no limit but memory itself */
  uint32_t allocation_alignment;  /* what alloc returns is aligned so */
  uint32_t allocation_granularity;
  uint32_t compute_units;
  uint32_t integrated; /* 1 = shares memory with the host */
  int32_t capability_major;
  int32_t capability_minor;
  uint32_t needs_stream_lock; /* 1 = host side serialises calls per stream */
  uint32_t unified_address;   /* 1 = pointers of all devices are distinct */
  /* 0 = unknown. All three since 1.2. */
  uint64_t l2_bytes;
  uint32_t shared_memory_per_block; /* bytes one block of threads may use */
  uint32_t clock_khz;               /* of the compute units, at most */
} npu_device_properties;

typedef struct npu_device_table {
  uint32_t size;
  uint32_t reserved;

  /* Number of devices. Cheap, does not initialise any of them.
   * Required. Since 1.0. */
  npu_status (*count)(int32_t* count);

  /* Initialise and release the device. open comes before any other use of it
   * and is called once; close only at shutdown, after all its streams are
   * destroyed. Required. Since 1.0. */
  npu_status (*open)(npu_device device);
  npu_status (*close)(npu_device device);

  /* Works before open. Required. Since 1.0. */
  npu_status (*properties)(npu_device device, npu_device_properties* out);

  /* Host waits for all streams. Errors: NPU_E_ASYNC. Required. Since 1.0. */
  npu_status (*synchronize)(npu_device device);

  /* Bytes free and in all, as the device sees them. Required. Since 1.0. */
  npu_status (*memory_info)(npu_device device, uint64_t* free, uint64_t* total);

  /* *yes = 1 when `device` can read `peer`'s memory in copy_peer without
   * staging. Default: no. Optional. Since 1.0. */
  npu_status (*can_access_peer)(
      npu_device device, npu_device peer, int32_t* yes);

  /* Give back memory of the driver's own that can be made again.
   * Default: nothing to give back. Optional. Since 1.0. */
  npu_status (*trim)(npu_device device);

  /* From now on kernels and copies of `device` may be given addresses of
   * `peer`. Called once per ordered pair for which can_access_peer said yes.
   * Default: nothing to do. Optional. Since 1.1. */
  npu_status (*enable_peer)(npu_device device, npu_device peer);

  /* The vendor SDK's own device or context, for operator packs.
   * Default: NULL. Optional. Since 1.1. */
  void* (*native_handle)(npu_device device);
} npu_device_table;

/* ---- memory ---- */

#define NPU_MEMORY_UNKNOWN 0u /* not of this driver: ordinary host memory */
#define NPU_MEMORY_DEVICE 1u
#define NPU_MEMORY_HOST 2u /* host_alloc */

typedef struct npu_pointer_info {
  uint32_t size; /* set by the caller */
  uint32_t kind;
  npu_device device; /* -1 unless NPU_MEMORY_DEVICE */
  uint32_t reserved;
  void* base; /* of the allocation */
  uint64_t bytes;
} npu_pointer_info;

#define NPU_ACCESS_READ 1u
#define NPU_ACCESS_WRITE 2u

/* Driver memory is raw: no caching, no pooling, no streams. The host side
 * caches. Large, seldom calls; synchronous is fine. */
typedef struct npu_memory_table {
  uint32_t size;
  uint32_t reserved;

  /* Errors: NPU_E_OUT_OF_MEMORY; the device stays usable.
   * Required. Since 1.0. */
  npu_status (*alloc)(npu_device device, uint64_t bytes, void** out);
  /* The memory is idle: no queued work uses it. Required. Since 1.0. */
  npu_status (*free)(npu_device device, void* ptr);

  /* Host memory that copies to and from the device do not have to stage
   * ("pinned"). Required. Since 1.0. */
  npu_status (*host_alloc)(uint64_t bytes, void** out);
  npu_status (*host_free)(void* ptr);

  /* Queue a copy of bytes.
   * Order:   after work already queued on `stream`.
   * Memory:  device ranges live until the stream passes this point. A host
   *          range made by host_alloc does too; any other host range is free
   *          to be reused when the call returns (the driver stages it, or
   *          waits). to_host into ordinary memory returns after the copy.
   * Required. Since 1.0. */
  npu_status (*copy_to_device)(
      npu_stream stream, void* dst, const void* src, uint64_t bytes);
  npu_status (*copy_to_host)(
      npu_stream stream, void* dst, const void* src, uint64_t bytes);
  /* Ranges do not overlap. Required. Since 1.0. */
  npu_status (*copy_on_device)(
      npu_stream stream, void* dst, const void* src, uint64_t bytes);

  /* Queue a copy between devices on `stream`, which may belong to either.
   * Required when count > 1. Since 1.0. */
  npu_status (*copy_peer)(
      npu_stream stream,
      npu_device dst_device,
      void* dst,
      npu_device src_device,
      const void* src,
      uint64_t bytes);

  /* Queue setting every byte. Required. Since 1.0. */
  npu_status (*set_bytes)(
      npu_stream stream, void* dst, int32_t value, uint64_t bytes);

  /* What a pointer (also an interior one) is. A pointer the driver does not
   * know is NPU_MEMORY_UNKNOWN, not an error. Required. Since 1.0. */
  npu_status (*pointer_info)(const void* ptr, npu_pointer_info* out);

  /* Open a range for host code, and close it again; calls nest and count.
   * Required with NPU_HOST_ACCESS_EXPLICIT, else unused. Since 1.0. */
  npu_status (*host_open)(void* ptr, uint64_t bytes, uint32_t access);
  npu_status (*host_close)(void* ptr, uint64_t bytes, uint32_t access);

  /* Pin host memory that the driver did not allocate, and unpin it: in between,
   * copies and pointer_info treat it like memory of host_alloc. The whole range
   * of one host_register is unpinned at once, when no copy uses it.
   * Errors: NPU_E_INVALID when part of it is registered already or is no
   * memory of this process. Default: NPU_E_UNSUPPORTED, and copies stage.
   * Optional, both or none. Since 1.1. */
  npu_status (*host_register)(void* ptr, uint64_t bytes);
  npu_status (*host_unregister)(void* ptr);

  /* The contents of a range are not needed any more, though it stays
   * allocated: the driver may let the system have its pages until the range is
   * written again. Reading it before that gives unspecified bytes. Work queued
   * on `stream` may still use the range; no more is queued until this returns.
   * Errors: NPU_NOT_READY, having done nothing, while such work is unfinished;
   * the caller asks again later. Never NPU_E_ASYNC.
   * Default: the memory stays as it is. Optional. Since 1.1. */
  npu_status (*discard)(npu_stream stream, void* ptr, uint64_t bytes);
} npu_memory_table;

/* ---- stream ---- */

typedef void (*npu_host_fn)(void* context);

typedef struct npu_stream_table {
  uint32_t size;
  uint32_t reserved;

  /* Lower number = more urgent; priorities are clamped to priority_range.
   * Required. Since 1.0. */
  npu_status (*create)(npu_device device, int32_t priority, npu_stream* out);
  /* Work still queued finishes first. Required. Since 1.0. */
  npu_status (*destroy)(npu_stream stream);

  /* Host waits. Errors: NPU_E_ASYNC, once, for work of this stream.
   * Required. Since 1.0. */
  npu_status (*synchronize)(npu_stream stream);
  /* NPU_OK when idle, NPU_NOT_READY, or NPU_E_ASYNC. Required. Since 1.0. */
  npu_status (*query)(npu_stream stream);

  /* Later work of `stream` waits for what `event` recorded last; an event
   * never recorded is no wait. They may be of different devices.
   * Required. Since 1.0. */
  npu_status (*wait_event)(npu_stream stream, npu_event event);

  /* Queue a function for a host thread. It must not call the driver.
   * Required. Since 1.0. */
  npu_status (*host_call)(npu_stream stream, npu_host_fn fn, void* context);

  /* Default: both 0. Optional. Since 1.0. */
  npu_status (*priority_range)(
      npu_device device, int32_t* least, int32_t* greatest);

  /* The vendor SDK's own stream, for operator packs.
   * Default: the npu_stream itself. Optional. Since 1.0. */
  void* (*native_handle)(npu_stream stream);

  /* The device address where kernels on this stream record errors, for kernels
   * of operator packs; npu/mailbox.h.
   * Default: NULL, the driver has none. Optional. Since 1.1. */
  struct npu_mailbox* (*mailbox)(npu_stream stream);
} npu_stream_table;

/* ---- event ---- */

#define NPU_EVENT_TIMING 1u
#define NPU_EVENT_BLOCKING 2u /* synchronize sleeps instead of spinning */
#define NPU_EVENT_SHARED 4u   /* may be exported through ipc/1. Since 1.1. */

typedef struct npu_event_table {
  uint32_t size;
  uint32_t reserved;

  /* Required. Since 1.0. */
  npu_status (*create)(npu_device device, uint32_t flags, npu_event* out);
  npu_status (*destroy)(npu_event event);
  /* A second record replaces the first; waits already queued keep the first.
   * Required. Since 1.0. */
  npu_status (*record)(npu_event event, npu_stream stream);
  /* NPU_OK when done or never recorded, else NPU_NOT_READY. From any thread.
   * Required. Since 1.0. */
  npu_status (*query)(npu_event event);
  /* Both may answer NPU_E_ASYNC for work before the record. */
  npu_status (*synchronize)(npu_event event);
  /* Errors: NPU_E_INVALID without NPU_EVENT_TIMING or when not recorded,
   * NPU_NOT_READY when not finished. Required. Since 1.0. */
  npu_status (*elapsed_ms)(npu_event start, npu_event end, double* out);
  /* Default: the npu_event itself. Optional. Since 1.0. */
  void* (*native_handle)(npu_event event);
} npu_event_table;

/* ---- operators ---- */

typedef struct npu_op_table {
  uint32_t size;
  uint32_t reserved;

  /* Slot of a kind. Standard kinds ("copy", "gemm", ...) have the fixed slots
   * of npu/kinds.h; a vendor's own are "vendor.name/1" with slots from
   * NPU_FIRST_VENDOR_SLOT on. Errors: NPU_E_UNSUPPORTED.
   * Required. Since 1.0. */
  npu_status (*find)(const char* name, uint32_t* slot);

  /* What a kind and code can do, independent of any call.
   * Errors: NPU_E_UNSUPPORTED when it cannot at all. Required. Since 1.0. */
  npu_status (*caps)(uint32_t slot, uint32_t code, struct npu_op_caps* out);

  /* Say whether and how this call can run. No device work, no pointer of the
   * call is read through. What it answers holds for run with the same key.
   * Threads: many at once. Required. Since 1.0. */
  npu_status (*plan)(
      npu_device device,
      const struct npu_call* call,
      struct npu_verdict* verdict);

  /* Queue the call. Does not synchronize and takes no device memory.
   * Errors: any means that nothing was queued. Required. Since 1.0. */
  npu_status (*run)(npu_stream stream, const struct npu_call* call);

  /* The host side releases a plan: the last run with it has returned, no graph
   * holds it, and the cache has evicted it (one plan at a time, when it is
   * full). Queued work may still be running: the driver has copied what that
   * needs of the plan, or holds a reference taken in run. Any thread, never
   * inside another entry point. Default: plans own nothing. Optional.
   * Since 1.0. */
  void (*release_plan)(void* plan);

  /* Load what the kind needs, ahead of its first call: the host side calls it
   * once per device and kind, before the kind's first plan or run there. The
   * place to take memory for kinds that are not planned. A failure is logged
   * and the kind is used all the same.
   * Default: nothing to do. Optional. Since 1.0. */
  npu_status (*warm)(npu_device device, uint32_t slot);

  /* Find the fastest way for this call, by running it: called once per plan
   * key when the call is flagged NPU_CALL_BENCHMARK, between plan and run.
   * `verdict` comes in as plan answered it and goes out as the host side is to
   * keep it for the key: YES, and never with more workspace than came in. A
   * new verdict->plan replaces the old one, which the host side releases; one
   * left alone stays. `call` is ready to run, with workspaces. Candidates may
   * write outputs of mode out and workspaces; inputs and inout operands are as
   * they were when tune returns. It may synchronize `stream`, and take memory
   * of its own that it gives back before it returns.
   * Errors: the verdict stays what plan answered; NPU_E_UNSUPPORTED is silent.
   * Default: nothing to choose from. Optional. Since 1.1. */
  npu_status (*tune)(
      npu_stream stream,
      const struct npu_call* call,
      struct npu_verdict* verdict);

  /* Load or compile what `call` needs, so that run does not have to. The host
   * side calls it before the first run of each combination of device, slot,
   * code, flags, modes, compute dtype, attributes marked `key`, and every
   * operand's dtype, flags and layout (contiguous, dense, inner stride 1,
   * other). Sizes make no difference. It asks for kinds whose caps say
   * NPU_PLAN_NONE: kinds that are planned prepare in plan. It does not ask for
   * a call flagged NPU_CALL_CAPTURE. No pointer of the call is read through,
   * nothing is queued, and the call has no workspace. Taking memory of the
   * driver's own is fine. Any thread. Errors: logged; run is called all the
   * same. Default: nothing to prepare. Optional. Since 1.2. */
  npu_status (*prepare)(npu_device device, const struct npu_call* call);
} npu_op_table;

/* ---- the driver ---- */

/* npu_driver.flags. What a driver of 1.1 says instead of platform "cpu". The
 * loader sets it for platform "cpu" too. Since 1.1. */
#define NPU_DRIVER_DEVICE_IS_CPU 1u
/* Every kernel the driver has is to be used, also for operators that an
 * imitated chip (default_profile) runs on the CPU. Since 1.1. */
#define NPU_DRIVER_EVERY_KERNEL 2u
/* Work is done when the call that queued it returns, on every stream: host code
 * that comes after it need not synchronise. Since 1.1. */
#define NPU_DRIVER_INLINE 4u
/* The device draws random numbers by a generator of its own. Kinds of the
 * family random, and dropout, need not give the numbers of
 * docs/random-numbers.md. What still holds: the distribution; equal seed and
 * offset give equal numbers; a draw at another offset is independent.
 * Since 1.2. */
#define NPU_DRIVER_OWN_RANDOM 8u

/* npu_driver.platform */
#define NPU_PLATFORM_CPU "cpu"
#define NPU_PLATFORM_CUDA "cuda"

/* Static data of the library; never freed. */
typedef struct npu_driver {
  uint32_t size;
  uint32_t abi;
  const char* name;            /* "acme": what NPU_DRIVER= names */
  const char* vendor;          /* "Acme Chips" */
  const char* version;         /* of the driver, free text */
  uint32_t tensor_flags_known; /* NPU_TENSOR_* the driver understands */
  uint32_t call_flags_known;   /* NPU_CALL_* the driver understands */

  const npu_device_table* device;
  const npu_memory_table* memory;
  const npu_stream_table* stream;
  const npu_event_table* event;
  const npu_op_table* op;

  /* Optional interfaces, each a struct of the header that has its name:
   * "capture/1", "comm/1", "profiler/1", "vmm/1", "ipc/1" (npu/capture.h, ...).
   * NULL = not offered. Static data; asked once per name.
   * Default: none. Optional. Since 1.0. */
  const void* (*get_interface)(const char* name);

  /* Last call. Later ones answer NPU_E_SHUTDOWN; the library stays loaded.
   * Default: nothing to do. Optional. Since 1.0. */
  npu_status (*shutdown)(void);

  uint32_t flags; /* NPU_DRIVER_*. Since 1.1. */
  uint32_t reserved;
  /* The profile used when the user names none: which chip this device imitates
   * in what it warns about. NULL = none: it warns about itself. Since 1.1. */
  const char* default_profile;
  /* Whose addresses and handles the driver deals in, and therefore which of
   * PyTorch's own kernels may compute on its memory:
   * - "cpu": device memory is memory of this process, and the device is this
   *   computer's processor. A kernel of PyTorch's for the CPU is as native as
   *   one of the driver's.
   * - "cuda": device addresses, stream.native_handle (a cudaStream_t) and
   *   event.native_handle (a cudaEvent_t) are those of CUDA's primary contexts,
   *   and device i is CUDA's device i.
   * - NULL: a platform that PyTorch has no kernels for.
   * Other names are kept and mean what NULL means. Since 1.2. */
  const char* platform;
} npu_driver;

#define NPU_DRIVER_ENTRY "npu_driver_entry"

/* The one exported symbol. Called once. On failure sets the error text through
 * `services` and *out stays NULL: the reason reaches the user at first use. */
typedef npu_status (*npu_driver_entry_fn)(
    uint32_t host_abi,
    const npu_host_services* services,
    const npu_driver** out);

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "npu/pack.h"

#endif /* NPU_DRIVER_H */
