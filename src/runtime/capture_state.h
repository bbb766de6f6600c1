// SPDX-License-Identifier: Apache-2.0
// Which streams are being captured into device graphs, and what that forbids.
#pragma once

#include <c10/core/Stream.h>

#include <string>

namespace npu {

// False when the stream is being captured already.
bool begin_stream_capture(c10::Stream stream);
// What was forbidden and tried meanwhile; empty when nothing was.
std::string end_stream_capture(c10::Stream stream);
// One load while nothing is captured anywhere.
bool is_stream_capturing(c10::Stream stream) noexcept;

// Throw, and break the capture, where `what` would wait for captured work.
void refuse_in_capture(c10::Stream stream, const char* what);
void refuse_in_capture(c10::DeviceIndex device, const char* what);
void refuse_in_capture(const void* event, const char* what);
// An event recorded in a capture is not reached before its end.
void note_event(const void* event, c10::Stream stream);
void forget_event(const void* event) noexcept;

}  // namespace npu
