// SPDX-License-Identifier: Apache-2.0
// Every function pointer of a driver, once, with what the host side needs to
// know of it, and what is made from that: the loader's checks and defaults, and
// layers over a driver. slots_test.cpp compares the table with the structs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "npu/op.h"

namespace npu {

// X(table, slot, need, moves). Append a slot where its struct has it.
// - need: kRequired, or kOptional: the loader fills in the default that
//   npu/driver.h states (SlotDefault in driver.cpp).
// - moves: which arguments name the memory that the slot copies or sets, or
//   kNothing. Whether a slot takes a stream and whether it can fail follows
//   from its type.
// copy_peer is required with several devices as well, host_open and host_close
// with NPU_HOST_ACCESS_EXPLICIT (Driver::check_conditional_slots).
#define NPU_SLOTS(X)                              \
  X(driver, get_interface, kOptional, kNothing)   \
  X(driver, shutdown, kOptional, kNothing)        \
  X(device, count, kRequired, kNothing)           \
  X(device, open, kRequired, kNothing)            \
  X(device, close, kRequired, kNothing)           \
  X(device, properties, kRequired, kNothing)      \
  X(device, synchronize, kRequired, kNothing)     \
  X(device, memory_info, kRequired, kNothing)     \
  X(device, can_access_peer, kOptional, kNothing) \
  X(device, trim, kOptional, kNothing)            \
  X(device, enable_peer, kOptional, kNothing)     \
  X(device, native_handle, kOptional, kNothing)   \
  X(memory, alloc, kRequired, kNothing)           \
  X(memory, free, kRequired, kNothing)            \
  X(memory, host_alloc, kRequired, kNothing)      \
  X(memory, host_free, kRequired, kNothing)       \
  X(memory, copy_to_device, kRequired, kToDevice) \
  X(memory, copy_to_host, kRequired, kToHost)     \
  X(memory, copy_on_device, kRequired, kOnDevice) \
  X(memory, copy_peer, kOptional, kPeer)          \
  X(memory, set_bytes, kRequired, kSet)           \
  X(memory, pointer_info, kRequired, kNothing)    \
  X(memory, host_open, kOptional, kNothing)       \
  X(memory, host_close, kOptional, kNothing)      \
  X(memory, host_register, kOptional, kNothing)   \
  X(memory, host_unregister, kOptional, kNothing) \
  X(memory, discard, kOptional, kNothing)         \
  X(stream, create, kRequired, kNothing)          \
  X(stream, destroy, kRequired, kNothing)         \
  X(stream, synchronize, kRequired, kNothing)     \
  X(stream, query, kRequired, kNothing)           \
  X(stream, wait_event, kRequired, kNothing)      \
  X(stream, host_call, kRequired, kNothing)       \
  X(stream, priority_range, kOptional, kNothing)  \
  X(stream, native_handle, kOptional, kNothing)   \
  X(stream, mailbox, kOptional, kNothing)         \
  X(event, create, kRequired, kNothing)           \
  X(event, destroy, kRequired, kNothing)          \
  X(event, record, kRequired, kNothing)           \
  X(event, query, kRequired, kNothing)            \
  X(event, synchronize, kRequired, kNothing)      \
  X(event, elapsed_ms, kRequired, kNothing)       \
  X(event, native_handle, kOptional, kNothing)    \
  X(op, find, kRequired, kNothing)                \
  X(op, caps, kRequired, kNothing)                \
  X(op, plan, kRequired, kNothing)                \
  X(op, run, kRequired, kKernel)                  \
  X(op, release_plan, kOptional, kNothing)        \
  X(op, warm, kOptional, kNothing)                \
  X(op, tune, kOptional, kNothing)                \
  X(op, prepare, kOptional, kNothing)

// ---- the table as types ----

// Copies of all structs of one driver, as this host knows them.
struct DriverTables {
  npu_driver driver{};
  npu_device_table device{};
  npu_memory_table memory{};
  npu_stream_table stream{};
  npu_event_table event{};
  npu_op_table op{};
};

enum SlotId : int {
#define NPU_SLOT_ID(table, slot, need, moves) k_##table##_##slot,
  NPU_SLOTS(NPU_SLOT_ID)
#undef NPU_SLOT_ID
      kSlotCount
};

enum class SlotNeed : std::uint8_t { kRequired, kOptional };

// What passes through a slot on its way to the device. Of a slot that moves
// bytes the stream comes first, the destination is the first void*, the source
// the first const void*, and the number of bytes comes last.
enum class SlotMoves : std::uint8_t {
  kNothing,
  kKernel,
  kToDevice,
  kToHost,
  kOnDevice,
  kPeer,
  kSet,
};

template <class Function>
struct SlotType;
template <class Result, class... Args>
struct SlotType<Result (*)(Args...)> {
  static constexpr bool takes_stream =
      (std::is_same_v<Args, npu_stream> || ...);
  static constexpr bool fallible = std::is_same_v<Result, npu_status>;
};

// One row of the table: a type, so that code for a slot is made at compile
// time.
template <auto Table, auto Member, SlotId Id, SlotNeed Need, SlotMoves Moves>
struct DriverSlot {
  static auto& in(DriverTables& tables) noexcept {
    return (tables.*Table).*Member;
  }
  static auto in(const DriverTables& tables) noexcept {
    return (tables.*Table).*Member;
  }
  using Function =
      std::remove_cvref_t<decltype(in(std::declval<DriverTables&>()))>;

  static constexpr SlotId id = Id;
  static constexpr bool required = Need == SlotNeed::kRequired;
  static constexpr SlotMoves moves = Moves;
  static constexpr bool takes_stream = SlotType<Function>::takes_stream;
  // Answers a status.
  static constexpr bool fallible = SlotType<Function>::fallible;
};

#define NPU_SLOT_TYPE(table, slot, need, moves)    \
  ::npu::DriverSlot<                               \
      &::npu::DriverTables::table,                 \
      &decltype(::npu::DriverTables::table)::slot, \
      ::npu::k_##table##_##slot,                   \
      ::npu::SlotNeed::need,                       \
      ::npu::SlotMoves::moves>

#define NPU_SLOT_ALIAS(table, slot, need, moves) \
  using Slot_##table##_##slot = NPU_SLOT_TYPE(table, slot, need, moves);
NPU_SLOTS(NPU_SLOT_ALIAS)
#undef NPU_SLOT_ALIAS

// "memory.alloc", by SlotId.
inline constexpr const char* kSlotNames[kSlotCount] = {
#define NPU_SLOT_NAME(table, slot, need, moves) #table "." #slot,
    NPU_SLOTS(NPU_SLOT_NAME)
#undef NPU_SLOT_NAME
};

// visit(DriverSlot<...>{}) for each row, in order.
template <class Visit>
constexpr void for_each_slot(Visit visit) {
#define NPU_VISIT_SLOT(table, slot, need, moves) \
  visit(NPU_SLOT_TYPE(table, slot, need, moves){});
  NPU_SLOTS(NPU_VISIT_SLOT)
#undef NPU_VISIT_SLOT
}

// A struct of another minor: the shorter of both, zero behind it.
template <class Struct>
void copy_struct(Struct& mine, const Struct* given) noexcept {
  mine = Struct{};
  std::memcpy(&mine, given, std::min<std::size_t>(given->size, sizeof(mine)));
  mine.size = sizeof(mine);
}

// ---- layers ----

// Note [Layers of a driver]: what the host side puts between its callers and a
// driver is a layer: functions that replace some slots and call the ones below.
// Functions of the tables have no context, so a layer is a type:
//
//   struct Layer {
//     static const DriverTables& below();       // what its functions call
//     template <class Slot>
//     static constexpr bool wants = ...;  // which slots it replaces
//     template <class Slot, class... Args>
//     static auto around(auto below, Args... args);  // calls below(args...)
//   };
//
// A slot that no layer wants stays the driver's own function: calling it costs
// what calling the driver costs.
template <class Layer, class Slot, class Function = typename Slot::Function>
struct Layered;
template <class Layer, class Slot, class Result, class... Args>
struct Layered<Layer, Slot, Result (*)(Args...)> {
  static Result call(Args... args) {
    return Layer::template around<Slot>(Slot::in(Layer::below()), args...);
  }
};

// Puts the layer on top: slots that are null stay null.
template <class Layer>
void add_layer(DriverTables& tables) noexcept {
  for_each_slot([&](auto slot) {
    using S = decltype(slot);
    if constexpr (Layer::template wants<S>) {
      if (S::in(tables) != nullptr) {
        S::in(tables) = &Layered<Layer, S>::call;
      }
    }
  });
}

// The first argument of type T.
template <class T, class First, class... Rest>
constexpr T first_of(First first, Rest... rest) noexcept {
  if constexpr (std::is_same_v<T, First>) {
    return first;
  } else {
    return first_of<T>(rest...);
  }
}

// The last argument.
template <class First, class... Rest>
constexpr auto last_of(First first, Rest... rest) noexcept {
  if constexpr (sizeof...(rest) == 0) {
    return first;
  } else {
    return last_of(rest...);
  }
}

}  // namespace npu
