# SPDX-License-Identifier: Apache-2.0
"""Find the cause of a warning of NCCL: by its call, its CUDA error, its status or its source file.

Each kind has a rule that reports it. A warning that no table knows has the kind WARNING, so no
warning is without a finding. Source of the messages: format strings of NCCL 2.12 to 2.30, and of
aws-ofi-nccl 1.9 to 1.16.
"""

import functools
import re

WARNING = "warning"
_LINE = re.compile(r"(?:(?P<file>[\w./~-]{1,120}):\d{1,6} )?NCCL WARN ?(?P<message>.*)")
_CUDA = re.compile(
    r"\b(?:[Cc]uda|HIP|Test CUDA) failure (?:(?P<code>\d{1,4}) |\S+:\d+ )?'(?P<words>[^']*)'"
)
_STATUS = re.compile(
    r"Got completion .*?(?:\bstatus=[A-Z_]*\(?(?P<status>\d{1,2})\b"
    r"|\bwith error (?P<error>\d{1,2})\b|\bstatus=IBV_WC_(?P<name>[A-Z_]+))"
    # perftest
    r"|\bFailed status (?P<test>\d{1,2}): wr_id \d"
)
_CALL = re.compile(
    r"(?:status: (?P<status>\d{1,3}) )?\b(?P<call>ibv_\w+|mlx5dv_\w+)(?:\([^)\n]{0,200}\))? ?:?"
    r" failed"
    r"(?: with)?(?: error)?(?P<why>[^,]*)"
)
# Programs that call verbs themselves: `Failed to modify QP to RTR, check gid: Invalid argument`.
_OTHER_CALL = re.compile(
    r"(?:\bError \d+ \((?P<first>[A-Z][^)]+)\).*)?\b[Ff]ailed to"
    r" (?P<what>modify|create|register) (?:QP|CQ|MR|memory)\b(?(first)|.*: (?P<why>[A-Z].*))"
)
_OTHER_CALLS = {"modify": "ibv_modify_qp", "create": "ibv_create_qp", "register": "ibv_reg_mr"}
_COMPLETIONS = {
    4: ("LOC_PROT_ERR", "rdma_protection"),
    5: ("WR_FLUSH_ERR", "rdma_flushed"),
    8: ("LOC_ACCESS_ERR", "rdma_protection"),
    10: ("REM_ACCESS_ERR", "rdma_protection"),
    12: ("RETRY_EXC_ERR", "rdma_no_answer"),
    13: ("RNR_RETRY_EXC_ERR", "rdma_not_ready"),
}
"""Name and kind by the status of a completion (enum ibv_wc_status). Others are "rdma_failed"."""
_ERRNOS = {
    "Operation not permitted": 1,
    "Cannot allocate memory": 12,
    "Bad address": 14,
    "No such device": 19,
    "Invalid argument": 22,
    "No data available": 61,
    "Operation not supported": 95,
    "Network is unreachable": 101,
    "Connection timed out": 110,
    "No route to host": 113,
}
_REGISTER = r"ibv_reg_\w+|mlx5dv_reg_\w+"
_CREATE = r"ibv_create_(?:qp|cq)|ibv_alloc_pd"
_VERBS: tuple[tuple[str, tuple[int, ...], str], ...] = (
    (r"ibv_modify_qp", (101, 110, 113), "rdma_no_path"),
    (r"ibv_modify_qp", (19, 22, 61), "rdma_address"),
    (_REGISTER, (12,), "rdma_memory"),
    (_CREATE, (12,), "rdma_memory"),
    (_REGISTER, (14, 22, 95), "rdma_gpu_memory"),
    (r"ibv_post_\w+|ibv_poll_cq", (), "rdma_failed"),
    (r"ibv_(?:get|ack)_async_event", (), "rdma_event"),
    (r"mlx5dv_get_data_direct_sysfs_path", (), "optional"),
    (r"ibv_reg_dmabuf_mr|mlx5dv_reg_dmabuf_mr", (), "rdma_gpu_memory"),
)
"""Kinds by verbs call and errno; () is any errno. Others are "verbs"."""
_CUDA_ERRORS = {
    1: ("invalid argument", "cuda"),
    2: ("out of memory", "gpu_memory"),
    3: ("initialization error", "cuda_init"),
    34: ("stub library", "no_gpu"),
    35: ("CUDA driver version is insufficient", "driver_old"),
    36: ("not supported in the installed CUDA driver", "driver_old"),
    46: ("busy or unavailable", "gpu_busy"),
    98: ("invalid device function", "no_kernel"),
    100: ("no CUDA-capable device", "no_gpu"),
    101: ("invalid device ordinal", "device"),
    209: ("no kernel image", "no_kernel"),
    214: ("uncorrectable ECC", "gpu_fault"),
    217: ("peer access is not supported", "peer_access"),
    220: ("uncorrectable NVLink", "gpu_fault"),
    222: ("unsupported toolchain", "driver_old"),
    226: ("Invalid access of peer GPU memory", "gpu_fault"),
    400: ("invalid resource handle", "cuda"),
    700: ("illegal memory access", "gpu_fault"),
    711: ("peer mapping resources exhausted", "peer_limit"),
    714: ("hardware stack", "gpu_fault"),
    716: ("misaligned address", "gpu_fault"),
    719: ("unspecified launch failure", "gpu_fault"),
    800: ("operation not permitted", "not_permitted"),
    801: ("operation not supported", "gpu_unsupported"),
    802: ("system not yet initialized", "fabric"),
    803: ("unsupported display driver", "no_gpu"),
    804: ("forward compatibility", "driver_old"),
}
"""Words of CUDA and kind by the code of an error. Others are "cuda"."""
_CAPTURE = range(900, 909)
_PEER_CODES = frozenset({1, 101, 217, 400, 800, 801})
"""Errors of importing memory: argument, ordinal, peer access, handle, permission, support."""
# Errors of CUDA that mean the same in each file of NCCL.
_EVERYWHERE = frozenset(
    {"gpu_memory", "cuda_init", "driver_old", "no_gpu", "no_kernel", "gpu_fault", "fabric"}
    | {"gpu_busy", "peer_limit"}
)
# Kinds by source file of the line ("" for any) and message. The first match decides.
_MESSAGES: tuple[tuple[str, str, str], ...] = (
    ("", r"NCCL version mismatch|Mismatched NCCL version", "versions_differ"),
    (r"(?:^|/)ras/", "", "ras"),
    ("", r"nvmlDeviceGet\w+.*failed: Not Supported|Failed to find nvml device", "optional"),
    ("", r"failed to (?:IPC|NVLS) register |MSCCL\+\+: Cannot enable|rocprofiler-register failed",
     "optional"),
    (r"rocm_smi|rsmi", "", "sysfs"),
    (r"(?:^|/)msccl", r"^(?!MSCCL\+\+)", "msccl"),
    (r"rocmwrap", r"^Failed to |^pfn_hsa", "optional"),
    ("", r"ENABLE_MSCCLPP must|RCCL_USE_AMD_SMI_LIB not set", "optional"),
    ("", r"unsupported collective\. Please", "usage"),
    ("", r"\[Service thread\] Unknown command -?\d+ from localRank -1", "stray_command"),
    ("", r"Could not find a path for pattern \d+, falling back", "search"),
    ("", r"reverse path from|rev link for|Add NVLink error", "nvlink_p2p"),
    ("", r"Could not find real path|could not find CPU|TopoFillNet: parent|"
     r"Could not read node #|Unknown CPU architecture", "sysfs"),
    ("", r"No transport found", "no_transport"),
    (r"gdrwrap\.", "", "gdrcopy"),
    ("", r"GDRCOPY (?:lib|failure)", "gdrcopy"),
    ("", r"NET/OFI Disabling shared memory failed", "ofi"),
    ("", r"NET/OFI The tuner plugin can ?not be loaded when", "ofi_tuner"),
    ("", r"(?:NET/OFI|<warn>).*(?:regist|mr_reg|MR\b|endpoint|CQ|QP).*Cannot allocate",
     "rdma_memory"),
    ("", r"\berror -12\b.*prov/efa", "rdma_memory"),
    ("", r"\bprov_errno\b", "ofi_failed"),
    ("", r"NET/OFI Unable to register memory \(type = 2\) .*Error: "
     r"|NET/OFI Network does not support (?:communication using )?CUDA buffers", "rdma_gpu_memory"),
    ("", r"NET/OFI.*(?:fi_getinfo|protocol that worked|Only EFA provider|Insufficient Libfabric |"
     r"requires at least libfabric|(?:[Nn]o |Couldn't find |Could not find ).*providers?)", "ofi"),
    ("", r"NET/OFI (?:\S+ initialization failed|Failed to initialize \w+ protocol)",
     "net_plugin"),
    ("", r"::\w+:cq:.*<warn>.*\berr\b", "ofi_failed"),
    # libfabric looks for the libraries of GPUs of all makers.
    ("", r"_hmem_dl_init\(\).*<warn>", WARNING),
    ("", r":cxi:.*<warn>.*(?:[Ff]ail|[Ee]rror|[Uu]nable|[Cc]annot|not recovered|[Ff]low control)",
     "ofi_failed"),
    ("", r"NET/OFI GDR disabled on GDR-supported", "ofi_gdr"),
    ("", r"NET/OFI Unexpected number of remote (?:control )?rails", "ofi_failed"),
    ("", r"NET/OFI.*(?:completed with error|into address vector|fi_\w+.*(?:failed|RC:)|"
     r"[Cc]ould(?:n't| not) |Failed (?:to|call)|Unable to |Error |[Ee]rror posting|"
     r"(?:initialization|Initializing .*|connect|domain \S+) failed|Caught exception|"
     r"queue full|retrieve completion queue)", "ofi_failed"),
    ("", r"(?i:NET/(?:FasTrak|GPUDirectTCPX).*(?:RxDM|datapath_manager|NIC mappings|no (?:ctrl )?"
     r"interfaces? found|no cuDevices|failed to (?:initialize|connect|get pci)|"
     r"initialization failed|FasTrak index|version mismatch|version is unsupported|"
     r"buffer registration request|dmabuf fd|(?:receive|connect|socket)\(\) error))"
     r"|receive-datapath-manager|no flow steering|get_gpumem_dmabuf_pages_fd\(\) failed"
     r"|unmatching unpack versions|NCCL_DEVICE_UNPACK"
     r"|\bfatal, .*(?:no cmsg|no data|landed on host)", "tcpx"),
    (r"sharp", "", "sharp"),
    ("", r"\bSHARP\b(?! \(NVLS\))|Cannot initialize CollNet", "sharp"),
    ("", r"[hH]ipIpc\w+ failed", "rocm_peer"),
    ("", r"[cC]udaIpc\w+ failed", "peer_import"),
    ("", r"Failed to CUDA [cm]alloc", "gpu_memory"),
    ("", r"No suitable space found|Failed to window register", "window"),
    ("", r"failed to open CUDA IPC handle", "peer_import"),
    ("", r"Failed to open libibverbs", "no_verbs"),
    ("", r"socketFinalizeAccept.* wrong type (?:3 != 4|4 != 3)", "networks_differ"),
    ("", r"socketFinalizeAccept.* wrong (?:magic|type)|ras.* magic", "foreign"),
    ("", r"P2P is disabled between NVLINK", "nvlink_p2p"),
    ("", r"ncclIbRoceGetVersionNum", "gid_type"),
    ("", r"(?:in|im)compatible (?:devices|with the local)|link_layer", "nics_mixed"),
    ("", r"NET/g?IB.*(?:async|event).*(?:work queue error|access violation)", "rdma_queue_event"),
    ("", r"local catastrophic error", "nic_fatal"),
    ("", r"NET/g?IB.* async .*event ?: ?port (?:error|active)", "rdma_port"),
    ("", r"NET/g?IB.*(?:Got async|async fatal|non-fatal async|GID table changed|unknown event)",
     "rdma_event"),
    ("", r"^MNNVL \(cliqueSize", "imex"),
    ("", r"bind NVLink SHARP \(NVLS\)", "nvls"),
    ("", r"Duplicate GPU detected|using the same GPU", "device"),
    ("", r"attaching to shared memory segment .*\(size 0\)", "cumem_host"),
    ("", r"No space left on device|failed to extend|posix_fallocate", "shm"),
    ("", r"while creating shared memory segment(?!.*error: (?!No space))", "shm"),
    (r"shmutils\.cc|/shm\.cc", "", "shm_access"),
    ("", r"shared memory (?:segment|file)|shm_open", "shm_access"),
    (r"ipcsocket\.cc", "", "local_socket"),
    ("", r"^UDS:|ncclProxyCallBlockingUDS", "local_socket"),
    ("", r"is neither AF_INET|Address family not supported", "peer_address"),
    ("", r"[Nn]o (?:socket |IP )?interface found|no device found (?:matching|after)|"
     r"No usable listening interface|\bbind\b.*Cannot assign requested address", "no_interface"),
    ("", r"[Cc]onnect to 172\.17\.\d+\.\d+<", "container_address"),
    ("", r"Bad file descriptor", "effect"),
    ("", r"Interrupted system call", "internal"),
    # Before "network": a socket that could not be made reached nobody.
    ("", r"Too many open files|Cannot allocate memory|malloc\(size=\d+\) returned null|"
     r"(?:pthread_create|fork|clone).*Resource temporarily unavailable", "limit"),
    ("", r"\b[Bb]ind\b.*Address already in use", "ports"),
    ("", r"^Missing \"|NUMA auto balancing|^HSA_\w+ is not set", "rocm_host"),
    ("", r"[rt]x ctrl timeout", "late"),
    ("", r"Unable to open device", "verbs"),
    ("", r"truncated|collective mismatch|Mismatched collective|incorrect receive info",
     "calls_differ"),
    # A communicator that an error left without ranks.
    ("", r"in the 0\.\.-1 range", "effect"),
    (r"argcheck\.cc", "", "usage"),
    ("", r"Bootstrap Root ?: ?(?:rank \d+ of \d+ ranks has already|mismatch in rank)", "usage"),
    # The struct of a newer release: "undefined" is no value for an older one.
    ("", r"Invali[dg] config .*-2147483648", "nccl_symbol"),
    ("", r"mixing different streams|improper usage|ncclConfig_t argument|Invali[dg] config |"
     r"ncclRedOp|nccl(?:Put|Wait)?Signal|ncclCommGrow|to self without|Data type supplied|pass NULL|"
     r"Streams given|Blocking and nonblocking|Either none or all|not in a group call|_INITIALIZER|"
     r"should not be called|already been destroyed|before the previous operation|was revoked|"
     r"Invalid (?:device|rank)|invalid device count|rank \d+ exceeds", "usage"),
    ("", r"\[(?:Proxy (?:[Ss]ervice|Progress)|Service thread)(?!.* Accept (?!failed (?:Suc|Res)))|"
     r"commReclaim|Proxy Call to rank|while polling for opId|commDestroySync|ncclCommSetAsyncError|"
     r"ncclAsyncJobComplete|in abort state|encountered a fatal error|ncclProxyStop|proxyDestroy",
     "effect"),
    ("", r"ibv_poll_cq\(\) returned|Got CQE with error", "rdma_failed"),
    (r"p2p_resiliency", "", "rdma_failover"),
    ("", r"compiled with (?:too old|NCCL) version", "nccl_symbol"),
    ("", r"failed to peer with device.*mapping resources exhausted", "peer_limit"),
    ("", r"failed to peer with device", "peer_import"),
    ("", r"closed by remote peer|Connection reset by peer|Broken pipe", "peer_gone"),
    ("", r"(?:[Cc]onnect\b|recv|send|accept|bind|poll|listen|getaddrinfo).*"
     r"(?:refused|timed out|unreachable|No route|assign requested)", "network"),
    (r"fastsocket", r"incoming CPU|Maximum retry", "optional"),
    (r"socket\.(?:cc?|h)|(?:^|/)bootstrap\.cc|os/\w+\.cc", r"[Cc]onnect to |PollConnect|"
     r"refused|timed out|unreachable|No route|assign requested|\bfailed ?:|"
     r"exceeded (?:error )?(?:retry|retries|timeouts)", "network"),
    ("", r"Failed to initialize any NET plugin|[Nn]etwork .{1,64} not found", "no_net"),
    ("", r"getting address info|Name or service not known|name resolution", "network"),
    (r"(?:^|/)xml\.(?:h|cc)", r"^Attribute |^Error : ", "topology_file"),
    ("", r"^Attribute \w+ of node|XML (?:(?:graph|topology) file|Import|Graph|Topology|Parse|"
     r"Mismatch|parser)", "topology_file"),
    ("", r"[Nn]o algorithm/protocol available|Unrecognized (?:element|prefix) token|"
     r"must have a prefix|valid NCCL_NET_FORCE_MERGE", "setting"),
    ("", r"Invalid value .*NCCL_|NCCL_\w+.*(?:ignored|ignoring|unknown value|not a valid|"
     r"[Pp]lease (?:use|specify))|Invalid NCCL_|ignoring NCCL_", "setting"),
    ("", r"(?:ring|tree) .*does not|Could not find (?:NET|net id|NIC|gpu rank)|TopoRankToIndex|"
     r"mixed local|a different number of devices", "graph"),
    (r"(?:^|/)graph/(?!xml)", "", "graph"),
    ("", r"Driver version found is \d+\. Minimum", "driver_old"),
    # A GPU that this container does not have: a peer's, or one of another number.
    ("", r"nvmlDeviceGetHandleBy\w+.*(?:Invalid Argument|Not Found)", "device"),
    ("", r"nvml\w+\(.*failed|NVML failure '(?!Not Supp)|Failed to open libnvidia-ml", "no_gpu"),
    # What is left of the sources, by part of NCCL. Before "internal": what the program asks for.
    ("", r"cannot be captured in a graph|CUDA [Gg]raphs? (?:feature|support)", "capture"),
    ("", r"Rem Allocator|pthread_join|[Tt]hread join|join thread|[Dd]eregister|hostStreamPlan|"
     r"munmap of|unlink shared|socket progress error|Legacy IPC cleanup", "effect"),
    ("", r"cap it to|[Ll]imiting|set (?:it|both) to \d|Unsetting|falling back to|"
     r"Continue without|not dumping|disabling\b|data_direct_sysfs|Could not enable P2P|"
     r"Failed to (?:find CUDA library|open libcuda)|PFN func|^Retrieve \w+ |CUDA missing symbol|"
     r"setting (?:to|NCCL_)", "optional"),
    ("", r"NCCL_\w+.*(?:out of range|greater than|too (?:big|small)|has been set to)|OOO RQ|"
     r"NCCL_IB_MERGE_NICS=0|No valid .* pair found|plane IDs?|Ip address .* is invalid",
     "setting"),
    (r"(?:^|/)(?:gin|gdaki|rma)(?:/|\.|_)|dev_runtime|symmetric_sched|ce_coll", "", "device_api"),
    ("", r"\bGIN\b|\bRMA\b|One[- ]sided|[Ss]ymmetric (?:memory|registration|register|kernel)",
     "device_api"),
    ("", r"CUMEM .*not supported prior", "gpu_unsupported"),
    ("", r"(?:create|set) CUDA (?:context|device)", "cuda"),
    ("", r"dlv?sym failed on .*(?:ibv|mlx5dv)_|lib wrapper not init", "no_verbs"),
    ("", r"Unable to query (?:device|port)", "verbs"),
    (r"coll_net\.", "", "sharp"),
    ("", r"has no transport|no transport for", "no_transport"),
    ("", r"ncclProxyClient\w+ call to", "local_socket"),
    ("", r"Could not map", "shm_access"),
    ("", r"Failed to (?:malloc|allocate)|CUDA host alloc|^Allocation failed|malloc of \d+|"
     r"calloc\(|Thread creation failed", "limit"),
    ("", r"is out of range|mismatch in info from|FP8 reduction|[Tt]oo many |Illegal to have|"
     r"Invalid (?:argument|handle)|parent comm|match the parent|split_?[Ss]hare|"
     r"host threads racing|Group creation failed|(?:suspend|resume) not supp|suspended", "usage"),
    (r"(?:^|/)(?:proxy|mem_manager|allocator)\.|misc/utils\.|register/|socket\.(?:cc|h)$",
     r"^(?!.*[Aa]ccept failed)", "internal"),
    (r"net_ib|(?:^|/)(?:init|enqueue|bootstrap|group|net|strongstream|p2p)\.|utils\.h",
     r"expected (?:a|graph)|Unknown (?:comp|pattern|coll|device)|request|=\{\d|unknown state|"
     r"already conn|mr 0x|[Vv]irtual|vNic|physical|not empty|has bugs|Failed to determine|nLocals|"
     r"not aligned|find mr |regBufType|invalid IPC peer|getRandom|ready == 0|"
     r"the number of devices", "internal"),
)  # fmt: skip
_COMPILED = tuple(
    (re.compile(file), re.compile(message), kind) for file, message, kind in _MESSAGES
)


def warning_kind(line: str) -> str | None:
    """Return the kind of a line with `NCCL WARN`; None for a line without these words."""
    match = _LINE.search(line)
    if match is None:
        return None
    return message_kind(match["message"], match["file"] or "")


def message_kind(message: str, file: str = "") -> str:
    """Return the kind of a warning's message. `file` is NCCL's source file, "" if not known."""
    return _message_kind(_LONG_NUMBER.sub("1000", message), file)


# Ports, addresses and counts, which decide no kind: without them, most lines of a log are alike.
_LONG_NUMBER = re.compile(r"\b0x[0-9a-f]{4,}|(?<![-\w])\d{4,}(?!\w)")


@functools.lru_cache(maxsize=1024)
def _message_kind(message: str, file: str) -> str:
    if (status := _STATUS.search(message)) is not None:
        return status_kind(
            int(status["status"] or status["error"] or status["test"] or 0), status["name"]
        )
    if (call := _CALL.search(message)) is not None:
        return _verbs_kind(call["call"], call["why"], int(call["status"] or 0))
    if (other := _OTHER_CALL.search(message)) is not None and not file:
        return _verbs_kind(_OTHER_CALLS[other["what"]], other["first"] or other["why"], 0)
    if (cuda := _CUDA.search(message)) is not None:
        return _cuda_kind(cuda["code"], cuda["words"], file)
    return next((kind for pattern, kind in _of_file(file) if pattern.search(message)), WARNING)


@functools.lru_cache(maxsize=256)
def _of_file(file: str) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((pattern, kind) for known, pattern, kind in _COMPILED if known.search(file))


def status_kind(status: int, name: str | None = None) -> str:
    """Return the kind of a completion with this status, or this name of one."""
    known = ((of, kind) for code, (of, kind) in _COMPLETIONS.items() if status == code)
    named = ((of, kind) for of, kind in _COMPLETIONS.values() if of == name)
    return next((kind for _, kind in (*known, *named)), "rdma_failed")


def _verbs_kind(call: str, why: str, status: int) -> str:
    number = next((value for words, value in _ERRNOS.items() if words in why), status)
    for pattern, errnos, kind in _VERBS:
        if re.fullmatch(pattern, call) and (not errnos or number in errnos):
            return kind
    return "verbs"


def _cuda_kind(said: str | None, words: str, file: str) -> str:
    number = int(said or 0)
    if number in _CAPTURE or "captur" in words:
        return "capture"
    # The symbols that this file looks up are NCCL's kernels.
    if "named symbol not found" in words and file.endswith("enqueue.cc"):
        return "no_kernel"
    if not number:
        known = ((code, text) for code, (text, _) in _CUDA_ERRORS.items() if text)
        number = next((code for code, text in known if text in words), 0)
    kind = _CUDA_ERRORS.get(number, ("", "cuda"))[1]
    if kind in _EVERYWHERE:
        return kind
    if file.endswith("nvls.cc"):
        return "nvls"
    if number in _PEER_CODES and file.endswith(("transport/p2p.cc", "transport/shm.cc")):
        own = "rocm_peer" if "hipify/" in file else "peer_import"
        return own if file.endswith("p2p.cc") else "cumem_host"
    return kind
