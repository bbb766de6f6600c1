# SPDX-License-Identifier: Apache-2.0
"""Codes of Ascend's runtime (aclError, rt_error_codes.h), as logs of real chips show them."""

from __future__ import annotations

import difflib

# family -> (codes with their names, without ACL_ERROR_RT_)
_FAMILIES: dict[str, str] = {
    "argument": (
        "107000 PARAM_INVALID, 107001 INVALID_DEVICEID, 107002 CONTEXT_NULL, 107003 STREAM_CONTEXT, "
        "107004 MODEL_CONTEXT, 107005 STREAM_MODEL, 107006 EVENT_TIMESTAMP_INVALID, "
        "107007 EVENT_TIMESTAMP_REVERSAL, 107008 ADDR_UNALIGNED, 107009 FILE_OPEN, 107010 FILE_WRITE, "
        "107011 STREAM_SUBSCRIBE, 107012 THREAD_SUBSCRIBE, 107013 GROUP_NOT_SET, "
        "107014 GROUP_NOT_CREATE, 107015 STREAM_NO_CB_REG, 107016 INVALID_MEMORY_TYPE, "
        "107017 INVALID_HANDLE, 107018 INVALID_MALLOC_TYPE"
    ),
    "timeout": (
        "107019 WAIT_TIMEOUT, 107020 TASK_TIMEOUT, 507012 REPORT_TIMEOUT, 507014 AICORE_TIMEOUT, "
        "507017 AICPU_TIMEOUT, 507034 VECTOR_CORE_TIMEOUT, 507046 STREAM_SYNC_TIMEOUT"
    ),
    "resource": (
        "207001 MEMORY_ALLOCATION, 207004 NO_DEVICE, 207005 RESOURCE_ALLOC_FAIL, 207006 NO_PERMISSION, "
        "207007 NO_EVENT_RESOURCE, 207008 NO_STREAM_RESOURCE, 207009 NO_NOTIFY_RESOURCE, "
        "207010 NO_MODEL_RESOURCE, 207012 OVER_LIMIT, 207018 DEVICE_OOM, 507032 PROGRAM_USE_OUT"
    ),
    "overflow": "207003 AICORE_OVER_FLOW, 207016 AIVEC_OVER_FLOW, 207017 OVER_FLOW",
    "unsupported": "207000 FEATURE_NOT_SUPPORT, 507008 SOC_VERSION, 507009 TASK_TYPE_NOT_SUPPORT",
    "kernel": (
        "507011 MODEL_EXECUTE, 507013 SYS_DMA, 507015 AICORE_EXCEPTION, "
        "507016 AICORE_TRAP_EXCEPTION, 507018 AICPU_EXCEPTION, 507035 VECTOR_CORE_EXCEPTION, "
        "507036 VECTOR_CORE_TRAP_EXCEPTION, 507042 AICORE_TRAP_READ_OVERFLOW, "
        "507043 AICORE_TRAP_WRITE_OVERFLOW, 507044 VECTOR_CORE_TRAP_READ_OVERFLOW"
    ),
    "fallout": "107022 DEVICE_TASK_ABORT, 507010 LOST_HEARTBEAT, 507899 DRV_INTERNAL_ERROR",
    "internal": (
        "507000 INTERNAL_ERROR, 507001 TS_ERROR, 507002 STREAM_TASK_FULL, 507003 STREAM_TASK_EMPTY, "
        "507004 STREAM_NOT_COMPLETE, 507005 END_OF_SEQUENCE, 507006 EVENT_NOT_COMPLETE, "
        "507007 CONTEXT_RELEASE_ERROR, 507019 AICPU_DATADUMP_RSP_ERR, 507020 AICPU_MODEL_RSP_ERR, "
        "507023 MODEL_ABORT_NORMAL, 507040 INVALID_DIEID"
    ),
}

_HERE = {
    "en": "OpenNPU itself does not give this code: a real chip's runtime does. ",
    "zh": "这个错误码由真实芯片的运行时给出，OpenNPU 自身不会给出。",
}

_TEXTS = {
    "argument": {
        "en": (
            "A call of the runtime is refused at once.",
            "An argument, handle or context is not valid: a stream or event of another device, a "
            "context that was destroyed, an address that is not aligned.",
            "The call did nothing.",
            "Look at the call that the log names. Run the program here: most wrong arguments raise an "
            "error with the Python line.",
        ),
        "zh": (
            "运行时的一次调用立即被拒绝。",
            "参数、句柄或 context 无效：属于另一设备的流或事件、已销毁的 context、未对齐的地址。",
            "该调用没有执行任何操作。",
            "查看日志所指的调用。在这里运行程序：大多数错误参数会报出 Python 行号。",
        ),
    },
    "timeout": {
        "en": (
            "The program hangs for minutes, then ends.",
            "A task did not end in time: a kernel that loops, a collective whose other ranks are "
            "missing, a stream that waits for an event that is never recorded.",
            "The stream takes no more work.",
            "Look first at the other ranks and at the first error in the log. Set ASCEND_LAUNCH_BLOCKING=1 "
            "to find the operator.",
        ),
        "zh": (
            "程序停顿几分钟后结束。",
            "任务没有按时结束：核函数死循环、集合通信中其他 rank 缺席、流等待一个从未记录的事件。",
            "该流不再接受任务。",
            "先看其他 rank 和日志里的第一个错误。设置 ASCEND_LAUNCH_BLOCKING=1 找到算子。",
        ),
    },
    "resource": {
        "en": (
            "An allocation, stream, event or model is refused.",
            "The device's memory or another resource is used up, or is not allowed to this user.",
            "The call did nothing. Earlier work is complete.",
            "torch.npu.memory_summary() shows how memory is used. NPU_HOST_MEMORY here, or a smaller batch, "
            "shows whether the model fits.",
        ),
        "zh": (
            "申请内存、流、事件或模型被拒绝。",
            "设备内存或其他资源耗尽，或当前用户没有权限。",
            "该调用没有执行任何操作；此前的结果完好。",
            "torch.npu.memory_summary() 显示内存占用。减小 batch 可判断模型是否放得下。",
        ),
    },
    "overflow": {
        "en": (
            "A result is not finite, or was saturated.",
            "A kernel computed a value outside of its dtype.",
            "Gradients of this step are wrong.",
            "Use a loss scaler with float16, or bfloat16. op_tools.OpOverflowCheck names the first operator.",
        ),
        "zh": (
            "结果不是有限值，或被饱和。",
            "核函数算出的值超出其 dtype 的范围。",
            "这一步的梯度是错的。",
            "float16 请使用 loss scaler，或改用 bfloat16。op_tools.OpOverflowCheck 指出第一个算子。",
        ),
    },
    "unsupported": {
        "en": (
            "A call is refused on this chip, and may work on another.",
            "The chip, its firmware or this version of CANN lacks the feature.",
            "The call did nothing.",
            "Compare the versions of driver, firmware and CANN. NPU_PROFILE shows here what the chip lacks.",
        ),
        "zh": (
            "某个调用在这种芯片上被拒绝，在别的芯片上可能可用。",
            "芯片、固件或当前 CANN 版本没有这个功能。",
            "该调用没有执行任何操作。",
            "核对驱动、固件和 CANN 的版本。在这里用 NPU_PROFILE 可查看该芯片缺少什么。",
        ),
    },
    "kernel": {
        "en": (
            "An error at a synchronize, far behind the call that caused it.",
            "A kernel failed while it ran: an index out of range, memory that was freed, a wrong shape, "
            "or an operator library that is not installed on the device. 507018 says only that it ran on "
            "the AI CPU; many causes come out as it.",
            "The stream, often the device of this process, is unusable. Errors after the first are its "
            "consequence.",
            "Set ASCEND_LAUNCH_BLOCKING=1: the Python line is then that of the operator. Read the first "
            "error in the device's log (plog). Run the program here: indices out of range and freed "
            "memory (NPU_HOST_PROTECT=1) raise an error with the line.",
        ),
        "zh": (
            "在 synchronize 处报错，离引起它的调用很远。",
            "核函数运行中失败：索引越界、内存已释放、shape 错误，或设备上没有安装对应的算子库。507018 只说明它运行在 AI CPU 上，许多原因都表现为它。",
            "该流（常常是本进程的整个设备）不可再用。第一个错误之后的错误都是它的后果。",
            "设置 ASCEND_LAUNCH_BLOCKING=1，Python 行号就是该算子的行号。查看设备日志（plog）里的第一个错误。"
            "在这里运行程序：越界索引和已释放的内存（NPU_HOST_PROTECT=1）会带行号报错。",
        ),
    },
    "fallout": {
        "en": (
            "Many calls fail, one after the other.",
            "The device failed earlier, or another process reset it.",
            "Nothing more runs on this device in this process.",
            "Look for the first error in the log, before this one. Start the process again.",
        ),
        "zh": (
            "许多调用接连失败。",
            "设备此前已出错，或被另一进程复位。",
            "本进程在该设备上不能再运行任何任务。",
            "在日志里查找此前的第一个错误。重新启动进程。",
        ),
    },
    "internal": {
        "en": (
            "A call of the runtime fails without a reason of the program's.",
            "The runtime or the task scheduler is in a state that it did not expect.",
            "The stream's work may be lost.",
            "Look for the first error in the device's log (plog), and compare the versions of driver, "
            "firmware and CANN.",
        ),
        "zh": (
            "运行时的调用失败，原因不在程序。",
            "运行时或任务调度器处于意料之外的状态。",
            "该流上的任务可能丢失。",
            "查看设备日志（plog）里的第一个错误，并核对驱动、固件和 CANN 的版本。",
        ),
    },
}


def find(code: int) -> tuple[str, dict[str, dict[str, str]]] | None:
    """(ACL_ERROR_RT_..., {language: {seen, cause, effect, do}}); None for an unknown code."""
    for family, listed in _FAMILIES.items():
        for row in listed.split(", "):
            number, name = row.split()
            if int(number) == code:
                return f"ACL_ERROR_RT_{name}", {lang: _parts(family, lang) for lang in _HERE}
    return None


def near(code: int) -> list[str]:
    """Known codes that look like this one, the nearest first."""
    rows = [row for listed in _FAMILIES.values() for row in listed.split(", ")]
    return difflib.get_close_matches(str(code), [row.split()[0] for row in rows], n=3, cutoff=0.7)


def _parts(family: str, lang: str) -> dict[str, str]:
    parts = dict(zip(("seen", "cause", "effect", "do"), _TEXTS[family][lang]))
    parts["cause"] = _HERE[lang] + parts["cause"]
    return parts
