// SPDX-License-Identifier: Apache-2.0
// Every function that NCCL 2.13 to 2.32 exports, with its parameters and their names. These are our
// own declarations of public facts. Structs that the stand-in does not read are void.
#pragma once

// clang-format off: a table
// F(name, parameters, arguments); each returns an ncclResult_t.
#define SOFT_NCCL_COMMUNICATORS(F) \
  F(ncclGetVersion, (int* version), (version)) \
  F(ncclGetUniqueId, (ncclUniqueId* id), (id)) \
  F(ncclCommInitRank, (ncclComm_t* made, int ranks, ncclUniqueId id, int rank), (made, ranks, id, rank)) \
  F(ncclCommInitRankConfig, (ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config), (made, ranks, id, rank, config)) \
  F(ncclCommInitRankScalable, (ncclComm_t* made, int ranks, int rank, int ids, ncclUniqueId* id, ncclConfig_t* config), (made, ranks, rank, ids, id, config)) \
  F(ncclCommInitAll, (ncclComm_t* made, int gpus, const int* list), (made, gpus, list)) \
  F(ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config), (comm, color, key, made, config)) \
  F(ncclCommShrink, (ncclComm_t comm, int* excluded, int count, ncclComm_t* made, ncclConfig_t* config, int flags), (comm, excluded, count, made, config, flags)) \
  F(ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* id), (comm, id)) \
  F(ncclCommGrow, (ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank, ncclComm_t* made, ncclConfig_t* config), (comm, ranks, id, rank, made, config)) \
  F(ncclCommFinalize, (ncclComm_t comm), (comm)) \
  F(ncclCommDestroy, (ncclComm_t comm), (comm)) \
  F(ncclCommAbort, (ncclComm_t comm), (comm)) \
  F(ncclCommRevoke, (ncclComm_t comm, int flags), (comm, flags)) \
  F(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* error), (comm, error)) \
  F(ncclCommCount, (ncclComm_t comm, int* ranks), (comm, ranks)) \
  F(ncclCommUserRank, (ncclComm_t comm, int* rank), (comm, rank)) \
  F(ncclCommCuDevice, (ncclComm_t comm, int* gpu), (comm, gpu)) \
  F(ncclCommSuspend, (ncclComm_t comm, int flags), (comm, flags)) \
  F(ncclCommResume, (ncclComm_t comm), (comm)) \
  F(ncclCommMemStats, (ncclComm_t comm, int which, uint64_t* value), (comm, which, value)) \
  F(ncclCommQueryProperties, (ncclComm_t comm, void* properties), (comm, properties)) \
  F(ncclSetEncryption, (const void* config), (config))

#define SOFT_NCCL_GROUPS_AND_MESSAGES(F) \
  F(ncclGroupStart, (), ()) \
  F(ncclGroupEnd, (), ()) \
  F(ncclGroupSimulateEnd, (ncclSimInfo_t* info), (info)) \
  F(ncclSend, (const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream), (from, count, type, peer, comm, stream)) \
  F(ncclRecv, (void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, CUstream stream), (to, count, type, peer, comm, stream)) \
  F(ncclPutSignal, (const void* from, size_t count, ncclDataType_t type, int peer, void* window, size_t offset, int signal, int context, unsigned flags, ncclComm_t comm, CUstream stream), (from, count, type, peer, window, offset, signal, context, flags, comm, stream)) \
  F(ncclSignal, (int peer, int signal, int context, unsigned flags, ncclComm_t comm, CUstream stream), (peer, signal, context, flags, comm, stream)) \
  F(ncclWaitSignal, (int count, ncclWaitSignalDesc_t* descriptors, ncclComm_t comm, CUstream stream), (count, descriptors, comm, stream))

// The collectives that also exist with a configuration. G(F, name, parameters, arguments) is one of:
#define SOFT_NCCL_PLAIN(F, name, parameters, arguments) F(name, parameters, arguments)
#define SOFT_NCCL_CONFIG(F, name, parameters, arguments) F(name##Config, SOFT_NCCL_MORE parameters, SOFT_NCCL_AND arguments)
#define SOFT_NCCL_MORE(...) (__VA_ARGS__, const ncclCollConfig_t* config)
#define SOFT_NCCL_AND(...) (__VA_ARGS__, config)
#define SOFT_NCCL_CONFIGURED(G, F) \
  G(F, ncclAllGather, (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, CUstream stream), (from, to, count, type, comm, stream)) \
  G(F, ncclAllReduce, (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream), (from, to, count, type, op, comm, stream)) \
  G(F, ncclAlltoAll, (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm, CUstream stream), (from, to, count, type, comm, stream)) \
  G(F, ncclBroadcast, (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream), (from, to, count, type, root, comm, stream)) \
  G(F, ncclGather, (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream), (from, to, count, type, root, comm, stream)) \
  G(F, ncclReduce, (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream), (from, to, count, type, op, root, comm, stream)) \
  G(F, ncclReduceScatter, (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream), (from, to, count, type, op, comm, stream)) \
  G(F, ncclScatter, (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream), (from, to, count, type, root, comm, stream))

#define SOFT_NCCL_COLLECTIVES(F) \
  SOFT_NCCL_CONFIGURED(SOFT_NCCL_PLAIN, F) \
  SOFT_NCCL_CONFIGURED(SOFT_NCCL_CONFIG, F) \
  F(ncclBcast, (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream), (buffer, count, type, root, comm, stream)) \
  F(ncclRedOpCreatePreMulSum, (ncclRedOp_t* op, void* scalar, ncclDataType_t type, int residence, ncclComm_t comm), (op, scalar, type, residence, comm)) \
  F(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm), (op, comm))

#define SOFT_NCCL_MEMORY(F) \
  F(ncclMemAlloc, (void** pointer, size_t bytes), (pointer, bytes)) \
  F(ncclMemFree, (void* pointer), (pointer)) \
  F(ncclCommRegister, (ncclComm_t comm, void* buffer, size_t bytes, void** handle), (comm, buffer, bytes, handle)) \
  F(ncclCommDeregister, (ncclComm_t comm, void* handle), (comm, handle)) \
  F(ncclCommWindowRegister, (ncclComm_t comm, void* buffer, size_t bytes, void** window, int flags), (comm, buffer, bytes, window, flags)) \
  F(ncclCommWindowDeregister, (ncclComm_t comm, void* window), (comm, window)) \
  F(ncclWinGetUserPtr, (ncclComm_t comm, void* window, void** pointer), (comm, window, pointer)) \
  F(ncclGetLsaDevicePointer, (void* window, size_t offset, int rank, void** pointer), (window, offset, rank, pointer)) \
  F(ncclGetLsaMultimemDevicePointer, (void* window, size_t offset, void** pointer), (window, offset, pointer)) \
  F(ncclGetMultimemDevicePointer, (void* window, size_t offset, uint64_t multimem, void** pointer), (window, offset, multimem, pointer)) \
  F(ncclGetPeerDevicePointer, (void* window, size_t offset, int peer, void** pointer), (window, offset, peer, pointer)) \
  F(ncclGetCftDeviceLeInfo, (void* window, size_t offset, int peer, ncclTeam_t team, void* id, void* info), (window, offset, peer, team, id, info)) \
  F(ncclGetMultimemDeviceLeInfo, (void* window, size_t offset, void* id, void* info), (window, offset, id, info)) \
  F(ncclGetPeerDeviceLeInfo, (void* window, size_t offset, int peer, void* id, void* info), (window, offset, peer, id, info))

#define SOFT_NCCL_DEVICE_AND_PARAMETERS(F) \
  F(ncclDevCommCreate, (ncclComm_t comm, const void* requirements, void* made), (comm, requirements, made)) \
  F(ncclDevCommDestroy, (ncclComm_t comm, const void* made), (comm, made)) \
  F(ncclLLA2ACreateRequirement, (int blocks, int slots, void* handle, void* requirement), (blocks, slots, handle, requirement)) \
  F(ncclLsaBarrierCreateRequirement, (ncclTeam_t team, int barriers, void* handle, void* requirement), (team, barriers, handle, requirement)) \
  F(ncclGinBarrierCreateRequirement, (ncclComm_t comm, ncclTeam_t team, int barriers, void* handle, void* requirement), (comm, team, barriers, handle, requirement)) \
  F(ncclGinInboxA2ACreateRequirement, (ncclTeam_t team, int blocks, int size, void* handle, void* requirement), (team, blocks, size, handle, requirement)) \
  F(ncclGinOutboxCreateRequirement, (int blocks, int size, void* handle, void* requirement), (blocks, size, handle, requirement)) \
  F(ncclParamBind, (void** handle, const char* key), (handle, key)) \
  F(ncclParamGet, (void* handle, void* value, int most, int* bytes), (handle, value, most, bytes)) \
  F(ncclParamGetAllParameterKeys, (const char*** keys, int* count), (keys, count)) \
  F(ncclParamGetI8, (void* handle, int8_t* value), (handle, value)) \
  F(ncclParamGetI16, (void* handle, int16_t* value), (handle, value)) \
  F(ncclParamGetI32, (void* handle, int32_t* value), (handle, value)) \
  F(ncclParamGetI64, (void* handle, int64_t* value), (handle, value)) \
  F(ncclParamGetU8, (void* handle, uint8_t* value), (handle, value)) \
  F(ncclParamGetU16, (void* handle, uint16_t* value), (handle, value)) \
  F(ncclParamGetU32, (void* handle, uint32_t* value), (handle, value)) \
  F(ncclParamGetU64, (void* handle, uint64_t* value), (handle, value)) \
  F(ncclParamGetStr, (void* handle, const char** value), (handle, value)) \
  F(ncclParamGetParameter, (const char* key, const char** value, int* bytes), (key, value, bytes))

#define SOFT_NCCL_FUNCTIONS(F) \
  SOFT_NCCL_COMMUNICATORS(F) \
  SOFT_NCCL_GROUPS_AND_MESSAGES(F) \
  SOFT_NCCL_COLLECTIVES(F) \
  SOFT_NCCL_MEMORY(F) \
  SOFT_NCCL_DEVICE_AND_PARAMETERS(F)

// F(returned type, name, parameters, arguments).
#define SOFT_NCCL_OTHER_FUNCTIONS(F) \
  F(const char*, ncclGetErrorString, (ncclResult_t result), (result)) \
  F(const char*, ncclGetLastError, (ncclComm_t comm), (comm)) \
  F(int, ncclLLA2ACalcSlots, (int elements, int bytes), (elements, bytes)) \
  F(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank)) \
  F(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t team, int rank), (comm, team, rank)) \
  F(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm), (comm)) \
  F(ncclTeam_t, ncclTeamRail, (ncclComm_t comm), (comm)) \
  F(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm), (comm)) \
  F(ncclTeam_t, ncclTeamCft, (ncclComm_t comm, int mode), (comm, mode)) \
  F(ncclTeam_t, ncclTeamCftMultimem, (ncclComm_t comm), (comm)) \
  F(void, ncclResetDebugInit, (), ()) \
  F(void, ncclResetDebugInitInternal, (), ()) \
  F(void, ncclParamDumpAll, (), ())
// clang-format on
