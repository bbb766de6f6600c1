// SPDX-License-Identifier: Apache-2.0
// Autograd's device threads, started and ended by us.
//
// Note [Autograd threads]
// PyTorch's engine starts one thread per device at the first backward of the
// process, even a pure CPU one, and from then on a forked child's backward
// raises. Those threads are detached, and one that meets the interpreter's end
// aborts the process. So the guard reports no devices when the engine asks, and
// init() starts the threads: CPU-only programs are not affected by the plugin,
// and we know when the threads have ended. Where PyTorch has a GPU too,
// a backward before init() starts its threads all the same; stopping waits
// until the system shows none of them.
#pragma once

#include <c10/core/Device.h>

namespace npu {

// Once, from init(). Throws when a thread cannot be started; may be retried.
void start_autograd_threads(c10::DeviceIndex devices);

// Backward passes that this thread starts run on it, as they do for CPU
// tensors: where the device is the CPU, handing every pass to another thread
// and waiting for it costs more than a small step. torch.autograd's
// set_multithreading_enabled(True) undoes it.
void run_backward_on_this_thread() noexcept;

// The count of CPU threads is each thread's own: a device thread keeps the one
// it began with, so torch.set_num_threads after the first backward would not
// reach the CPU kernels that a backward pass runs there. These two carry it
// over. From the guard: the engine asks for the caller's stream as a pass
// begins, and switches to a node's stream before it runs the node.
void note_thread_count_of_caller() noexcept;
void follow_thread_count_of_caller() noexcept;

// Without the GIL, which the threads need to end. In a forked child, where they
// do not exist, only clears the list of them.
void stop_autograd_threads() noexcept;

// True on the thread that is starting them: the guard then shows no devices.
bool hiding_devices() noexcept;

}  // namespace npu
