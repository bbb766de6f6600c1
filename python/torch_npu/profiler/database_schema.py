# SPDX-License-Identifier: Apache-2.0
"""Tables, columns and numbers of Ascend's databases of a profile, as its documents list them."""

# Names of a table's columns; each holds whole numbers unless it says something else.
PROFILE = {
    "STRING_IDS": "id PRIMARY KEY, value TEXT",
    "SESSION_TIME_INFO": "startTimeNs, endTimeNs",
    "NPU_INFO": "id, name TEXT",
    "HOST_INFO": "hostUid TEXT, hostName TEXT",
    "META_DATA": "name TEXT, value TEXT",
    "RANK_DEVICE_MAP": "rankId, deviceId",
    "PYTORCH_API": (
        "startNs, endNs, globalTid, connectionId, name, sequenceNumber, fwdThreadId, inputDtypes, "
        "inputShapes, callchainId, type"
    ),
    "CONNECTION_IDS": "id, connectionId",
    "PYTORCH_CALLCHAINS": "id, stack, stackDepth",
    "CANN_API": "startNs, endNs, type, globalTid, connectionId, name",
    "TASK": (
        "startNs, endNs, deviceId, connectionId, globalTaskId, globalPid, taskType, contextId, "
        "streamId, taskId, modelId"
    ),
    "COMPUTE_TASK_INFO": (
        "name, globalTaskId, blockNum, mixBlockNum, taskType, opType, inputFormats, inputDataTypes, "
        "inputShapes, outputFormats, outputDataTypes, outputShapes, attrInfo, opState, hf32Eligible"
    ),
    "COMMUNICATION_OP": (
        "opName, startNs, endNs, connectionId, groupName, opId, relay, retry, dataType, algType, "
        "count NUMERIC, opType, deviceId"
    ),
    "COMMUNICATION_TASK_INFO": (
        "name, globalTaskId, taskType, planeId, groupName, notifyId, rdmaType, srcRank, dstRank, "
        "transportType, size, dataType, linkType, opId, isMaster, bandwidth NUMERIC"
    ),
    "MEMCPY_INFO": "globalTaskId NUMERIC, size NUMERIC, memcpyOperation NUMERIC",
    "MSTX_EVENTS": (
        "startNs, endNs, eventType, rangeId, category, message, globalTid, endGlobalTid, domainId, "
        "connectionId"
    ),
    "STEP_TIME": "id, startNs, endNs",
    "MEMORY_RECORD": (
        "component, timestamp, totalAllocated, totalReserved, totalActive, streamPtr, deviceId"
    ),
    "OP_MEMORY": (
        "name, size, allocationTime, releaseTime, activeReleaseTime, duration, activeDuration, "
        "allocationTotalAllocated, allocationTotalReserved, allocationTotalActive, "
        "releaseTotalAllocated, releaseTotalReserved, releaseTotalActive, streamPtr, deviceId"
    ),
}
ANALYSIS = {
    "CommAnalyzerBandwidth": (
        "hccl_op_name TEXT, group_name TEXT, transport_type TEXT, transit_size NUMERIC, "
        "transit_time NUMERIC, bandwidth NUMERIC, large_packet_ratio NUMERIC, package_size NUMERIC, "
        "count NUMERIC, total_duration NUMERIC, step TEXT, type TEXT"
    ),
    "CommAnalyzerTime": (
        "hccl_op_name TEXT, group_name TEXT, start_timestamp NUMERIC, elapse_time NUMERIC, "
        "transit_time NUMERIC, wait_time NUMERIC, synchronization_time NUMERIC, idle_time NUMERIC, "
        "step TEXT, type TEXT"
    ),
    "StepTraceTime": (
        "deviceId, step TEXT, computing NUMERIC, communication_not_overlapped NUMERIC, "
        "overlapped NUMERIC, communication NUMERIC, free NUMERIC, stage NUMERIC, bubble NUMERIC, "
        "communication_not_overlapped_and_exclude_receive NUMERIC, preparing NUMERIC"
    ),
}
API_OP, API_TRACE, API_MSTX = 50001, 50003, 50004
API_NODE, API_COMMUNICATION, API_RUNTIME = 10000, 5500, 5000
ENUMS = {
    "ENUM_API_TYPE": {
        20000: "acl",
        15000: "model",
        API_NODE: "node",
        API_COMMUNICATION: "communication",
        API_RUNTIME: "runtime",
        API_OP: "op",
        50002: "queue",
        API_TRACE: "trace",
        API_MSTX: "mstx",
    },
    "ENUM_HCCL_DATA_TYPE": {
        0: "INT8",
        1: "INT16",
        2: "INT32",
        3: "FP16",
        4: "FP32",
        5: "INT64",
        6: "UINT64",
        7: "UINT8",
        8: "UINT16",
        9: "UINT32",
        10: "FP64",
        11: "BFP16",
        255: "RESERVED",
        65534: "N/A",
        65535: "INVALID_TYPE",
    },
    "ENUM_HCCL_LINK_TYPE": {
        0: "ON_CHIP",
        1: "HCCS",
        2: "PCIE",
        3: "ROCE",
        4: "SIO",
        255: "RESERVED",
        65534: "N/A",
        65535: "INVALID_TYPE",
    },
    "ENUM_HCCL_TRANSPORT_TYPE": {
        0: "SDMA",
        1: "RDMA",
        2: "LOCAL",
        255: "RESERVED",
        65534: "N/A",
        65535: "INVALID_TYPE",
    },
    "ENUM_HCCL_RDMA_TYPE": {
        0: "RDMA_SEND_NOTIFY",
        1: "RDMA_SEND_PAYLOAD",
        255: "RESERVED",
        65534: "N/A",
        65535: "INVALID_TYPE",
    },
    "ENUM_MSTX_EVENT_TYPE": {0: "marker", 1: "push/pop", 2: "start/end", 3: "marker_ex"},
    "ENUM_MEMCPY_OPERATION": {
        0: "host to host",
        1: "host to device",
        2: "device to host",
        3: "device to device",
        65535: "other",
    },
}
