# SPDX-License-Identifier: Apache-2.0
"""Right commands without a finding, wrong ones with the finding that names the mistake, and fixes
that are right commands themselves."""

import re

import pytest

from nccltune.cli import run
from nccltune.launch_lint.check import check
from nccltune.launch_lint.command import LaunchContext
from nccltune.launch_lint.source import from_text
from tests.unit.launch_lint.judged import bad, only

RUN = "all_reduce_perf -b 8 -e 8G -f 2"
G1, G8 = f"{RUN} -g 1", f"{RUN} -g 8"
TWO = "mpirun -np 16 -H a:8,b:8"
SRUN = "srun -N 2 --ntasks-per-node=8"

RIGHT = [
    f"./build/{G8}",
    f"NCCL_DEBUG=INFO ./build/{G8}",
    f"./build/{RUN} --ngpus 8",
    f"{TWO} -x NCCL_ALGO=MSCCL,Ring --bind-to none {G1}",
    f"{TWO} --bind-to none --mca pml ucx -x MV2_USE_ROCM=1 {G1}",
    "mpirun -np 16 -f hosts $TARGET -b 8 -e 8G -f 2 -g 1",
    f"mpirun -np 2 ... {G1} ...",
    "mpirun -np 1 ... NCCL_HOSTID=a ...",
    "srun -n 2 --mpi=pspmix python t.py",
    "srun --nodes=2 --ntasks=1 -w n1 python t.py",
    "mpiexec --memory-allocation-kinds system,mpi -n 8 -H a:8 python t.py",
    "srun bash -c 'cd /w && mpiexec -np 2 python t.py'",
    "torchrun --nproc-per-node=8 t.py --tokens '<audio>,32002'",
    'L="A_B=info C_D=1 torchrun --nproc-per-node=8"\nexport L\nsrun -n 1 bash -c "$L t.py"',
    "horovodrun -np 8 -H a:8 --blacklist-cooldown-range 1 2 python t.py",
    "srun -n1 --ntasks-per-node=8 mpirun -np 8 python t.py",
    f"{TWO} -vv -mca btl_tcp_if_exclude lo,docker0 {G1}",
    "mpirun -np 4 -H a:2,b:2, python t.py",
    f"CUDA_VISIBLE_DEVICES=0,1,2,3 ./build/{RUN} -g 4",
    f"docker run --rm --gpus all --ipc=host nccl-tests ./build/{G8}",
    f"numactl --cpunodebind=0 ./build/{G8}",
    f"{TWO} --bind-to none -x NCCL_DEBUG=INFO {G1}",
    f"mpirun -np 2 -N 1 -H a:8,b:8 --bind-to numa {G8}",
    f"mpirun -np 2 --map-by ppr:1:node --bind-to none -H a:1,b:1 {G8}",
    f"{TWO} --map-by ppr:8:node:PE=12 {G1}",
    f"{TWO} --map-by slot --rank-by slot {G1}",
    f"{TWO} -mca btl tcp,self -mca btl_tcp_if_include eth0 {G1}",
    f"{TWO} --mca oob_tcp_if_include bond0 --mca plm_rsh_num_concurrent 300 {G1}",
    f"{TWO} -x NCCL_SOCKET_IFNAME==eth0 -x NCCL_IB_HCA=^mlx5_1 {G1}",
    f"{TWO} -x NCCL_IB_HCA==mlx5_0:1,mlx5_3:1 -x NCCL_IB_GID_INDEX=3 -x NCCL_IB_TC=106 {G1}",
    f"{TWO} -x 'NCCL_ALGO=allreduce:tree;broadcast:ring' {G1}",
    f"{TWO} -x NCCL_ALGO=^NVLS,NVLSTree -x NCCL_PROTO=^LL128 {G1}",
    f"{TWO} -x NCCL_ALGO=ring,tree -x NCCL_PROTO=simple {G1}",
    f"{TWO} -x NCCL_ALGO=CollNetDirect -x NCCL_COLLNET_ENABLE=1 {G1}",
    f"{TWO} -x NCCL_NET_PLUGIN=aws-ofi -x FI_PROVIDER=efa -x OFI_NCCL_PROTOCOL=RDMA {G1}",
    f"{TWO} -x NCCL_NET_GDR_LEVEL=PHB -x NCCL_P2P_LEVEL=NVL -x NCCL_CROSS_NIC=2 {G1}",
    f"{TWO} -x NCCL_BUFFSIZE=8388608 -x NCCL_MIN_NCHANNELS=16 -x NCCL_NTHREADS=512 {G1}",
    f"{TWO} -x NCCL_DEBUG=warn -x NCCL_DEBUG_SUBSYS=INIT,GRAPH,^NET {G1}".replace(",^NET", ",NET"),
    f"{TWO} -x NCCL_DEBUG_SUBSYS=^ALL -x NCCL_SOCKET_FAMILY=AF_INET6 {G1}",
    f"{TWO} -x NCCL_IB_DISABLE=1 -x NCCL_SOCKET_IFNAME=eth0 -x NCCL_NSOCKS_PERTHREAD=4 {G1}",
    f"{TWO} -x NCCL_NET=Socket -x NCCL_SOCKET_NTHREADS=4 {G1}",
    f"mpirun -np 8 -x NCCL_NET=Socket {G1}",
    f"{TWO} -x NCCL_TESTS_SPLIT_MASK=0x7 -x NCCL_CUMEM_ENABLE=1 -x NCCL_NVLS_ENABLE=2 {G1}",
    f"{TWO} -x LD_LIBRARY_PATH -x PATH -x NCCL_TUNER_CONFIG_FILE=/etc/t.conf {G1}",
    f"{TWO} -x TORCH_NCCL_ASYNC_ERROR_HANDLING=1 -x NCCL_ASYNC_ERROR_HANDLING=1 {G1}",
    f"{TWO} {G1} -d bfloat16 -o avg -n 50 -w 10 -c 1 -N 2 -z 0 -R 1 -a 1",
    f"{TWO} {G1} -d all -o all",
    f"{TWO} broadcast_perf -b 8 -e 1G -f 2 -g 1 -r 15",
    f"{TWO} all_gather_perf -b 1M -e 64M -i 1048576 -g 1",
    f"{TWO} alltoall_perf -b 8M -e 8M -g 1 -G 5",
    f"mpiexec.hydra -hosts a,b -n 16 -ppn 8 -genv NCCL_DEBUG INFO -genv NCCL_IB_HCA=mlx5 {G1}",
    f"mpiexec.hydra -f hosts -n 16 -ppn 8 -bind-to numa -iface eth0 {G1}",
    f"{SRUN} --mpi=pmix --gpus-per-node=8 {G1}",
    f"{SRUN} --mpi=pmi2 --gres=gpu:h100:8 --cpu-bind=none --export=ALL,NCCL_DEBUG=INFO {G1}",
    f"srun -N 2 --ntasks-per-node=1 --gpus-per-task=8 -c 96 {G8}",
    f"srun -N 4 -n 4 --gpus-per-node=8 --exclusive {G8}",
    f"srun -N 2 -n 8 --ntasks-per-node=4 --gpus-per-node=4 {G1}",
    "torchrun --standalone --nproc-per-node=8 train.py --lr 0.1",
    # Short options of srun in one word, and beginnings of torchrun's long names.
    f"srun -lu -N2 --ntasks-per-node=8 {G1}",
    f"srun -ulN 2 --ntasks-per-node=8 {G1}",
    "torchrun --nnode=1 --nproc_per_nod=8 train.py",
    # Options that are left out may be those that are missing.
    "torchrun --nproc-per-node=8 --nnodes=2 ... train.py",
    "torchrun --nproc-per-node=8 --nnodes=$WORLD_SIZE --node-rank=$RANK train.py",
    "torchrun --nproc-per-node=16 train.py",
    "torchrun --nproc-per-node=8 t.py --tokens '<image>' \"</s>\"",
    "torchrun --nproc-per-node={{ n }} train.py",
    "CUDA_VISIBLE_DEVICES=0 mpiexec.hydra -n 8 -ppn 8 ./solver",
    f"CUDA_HOME=/usr/local/cuda {TWO} {G1}",
    "mpiexec -n 8 -ppn 4 --depth=4 --cpu-bind depth /opt/intel/oneapi/run",
    "mpiexec -n 8 --ppn 8 --cpu-bind list:0:1:2:3:4:5:6:7 ./a",
    "deepspeed t.py --dir ./runs/deepspeed",
    "CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus 2 t.py",
    "python plan.py --nodes 8 -- accelerate launch --num_machines 8 --num_processes 64 t.py",
    "#!/bin/bash\n#SBATCH --image=i --module=gpu,nccl-2.18\nsrun -n 4 shifter ./a",
    "NCCL_DEBUG=INFO mpirun -n 2 --host a,b true",
    "CUDA_DEVICE_MAX_COPY_CONNECTIONS=8 torchrun --standalone --nproc-per-node=8 t.py",
    "aprun -N 4 -n 256 --cc core --cpus-per-pe 8 ./a",
    "#!/bin/bash\n#SBATCH -N 4 --ntasks-per-node=1\nA='python3 -m torch.distributed.run'\n"
    "B=(--nnodes=4 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=a:1)\n"
    'srun -l $A "${B[@]}" train.py',
    "#PBS -l select=1:ncpus=40:mpiprocs=40\nN=$(cat $PBS_NODEFILE | wc -l)\n"
    "mpirun -np $N -hostfile $PBS_NODEFILE ./solver",
    "export CMD='python t.py'\nsrun -N 2 --ntasks-per-node=8 bash -c '$CMD --rank $SLURM_PROCID'",
    "srun -N 2 --ntasks-per-node=8 bash -c 'A=1; python t.py $A'",
    "export L='A=1 LEVEL=info accelerate launch'\nsrun -N 2 --ntasks-per-node=8 python t.py",
    "srun --nodes=2 --ntasks=1 -w $HEAD docker exec c python3 t.py",
    *(
        f"X=1\nsrun -N 2 --ntasks-per-node=8 bash -c '{sets} python t.py $X'"
        for sets in (
            *("source e.sh;", "cd d && . ./e;", "if true; then . e; fi;", "eval $(e);"),
            *("mapfile -t X < f;", "readarray X < f;", "read -r A X < f;", "getopts ab: X;"),
            *("printf -v X 1;", "X+=1;", "while read X; do"),
        )
    ),
    "torchrun --standalone --nproc-per-node=8 bench.py all_reduce -b 8 -e 1G",
    f"{TWO} python3 bench.py --op all_reduce -b 1M -e 1G",
    f"{TWO} ./bench.py allreduce_perf -b 1M -e 1G",
    f"{TWO} ./bench all_reduce -b 1M -e 1G",
    "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=a:29500 train.py",
    "torchrun --nnodes 2 --node-rank $RANK --nproc-per-node gpu --master-addr a t.py --nodes 3",
    "python3 -m torch.distributed.run --nproc-per-node 8 -m pkg.train --nproc 4",
    "srun -N 2 --ntasks-per-node=1 torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d"
    " --rdzv-endpoint=$HEAD:29500 train.py",
    f"{TWO} python train.py",
    f"mpirun -np 4 --oversubscribe {RUN} -g 2",
    f"{TWO} --mca plm_rsh_args '-p 2222' --mca prte_base_help_aggregate 0 {G1}",
    f"mpirun -H a:8,b:8 {G1} -n 16 -N 8",
    f"{TWO} -x NCCL_FASTRAK_IFNAME=eth1,eth2 -x NCCL_DYNAMIC_CHUNK_SIZE=524288 {G1}",
    f"{TWO} -x NCCL_NET=gIB -x UCX_NET_DEVICES=mlx5_0:1 -x DYLD_LIBRARY_PATH=/lib {G1}",
    f"mpirun -np 8 bash -c 'exec {G1}'",
    f"srun -N2 -n16 --mpi=pmix --container-image=nccl-tests {G1}",
    f"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --wckey=a\nsrun {G1}",
    f"{TWO} {G1} 2>&1 | tee log.txt",
    f"srun -N 2 --gpus-per-node=8 --ntasks-per-gpu=1 {G1}",
    f"sbatch -N 2 --ntasks-per-node=8 --gpus-per-node=8 --wrap 'srun {G1}'",
    f"kubectl exec pod -- bash -c 'mpirun -np 8 {G1}'",
    "torchrun --nproc-per-node=8 --nnodes=2 --node-rank=0 --master-addr=$(hostname -i) t.py",
    "srun -N 2 bash -c 'torchrun --nproc-per-node=8 --nnodes=2 --node-rank=$SLURM_NODEID"
    " --master-addr=$(hostname) t.py'",
    *(
        f"ssh b {quote}torchrun --nproc-per-node=8 --nnodes=2 --node-rank=1"
        f" --master-addr=$(hostname -i) t.py{quote}"
        for quote in ("", '"')
    ),
    "srun -N 1 -w b torchrun --nproc-per-node=8 --nnodes=2 --node-rank=1"
    " --master-addr=$(hostname -i) t.py & srun -w a ./b",
    f"mpirun -np 8 -x HSA_XNACK=1 -x NCCL_MIN_NCHANNELS=112 {G1}",
    f"mpirun -np 4 -H a:4 -rf ranks {RUN} -g 2",
    *(f"srun -N {n} --ntasks-per-node=8 {G1}" for n in ("2", "2-4", "1k", "1,3,5-9:2", "02")),
    f"mpirun -np 16 -H a:*,b:8 {G1}",
    f"mpirun -np 2 -N 1 --bind-to none -H [fe80::1]:8,b:8 {G8}",
    "torchrun --nnodes=1 --nproc-per-node=gpu t.py",
]

# fmt: off
WRONG = [
    # Names and values of variables.
    (f"{TWO} -x NCCL_ALG=Ring {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_SOCKET_IFNAMES=eth0 {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_IFNAME=eth0 {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_PROTOCOL=LL {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_DISABLE_IB=1 -x NCCL_SOCKET_IFNAME=eth0 {G1}", "variable-unknown"),
    (f"{TWO} -x NCLL_DEBUG=INFO {G1}", "variable-unknown"),
    (f"{TWO} -x nccl_debug=INFO {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_BUFFER_SIZE=8388608 {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_DEBUG:INFO {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_IB_CUDA_SUPPORT=1 {G1}", "variable-removed"),
    (f"{TWO} -x NCCL_TREE_THRESHOLD=0 {G1}", "variable-removed"),
    (f"{TWO} -x NCCL_ALGO=Treee {G1}", "variable-value"),
    (f"{TWO} -x 'NCCL_ALGO=Ring, Tree' {G1}", "variable-value"),
    (f"{TWO} -x 'NCCL_ALGO=all_reduce:tree' {G1}", "variable-value"),
    (f"{TWO} -x NCCL_PROTO=LL256 {G1}", "variable-value"),
    (f"{TWO} -x NCCL_DEBUG=DEBUG {G1}", "variable-value"),
    (f"{TWO} -x NCCL_DEBUG=1 {G1}", "variable-value"),
    (f"{TWO} -x NCCL_DEBUG_SUBSYS=INIT,NETWORK {G1}", "variable-value"),
    (f"{TWO} -x NCCL_NET_GDR_LEVEL=PHD {G1}", "variable-value"),
    (f"{TWO} -x NCCL_P2P_LEVEL=nvl {G1}", "variable-value"),
    (f"{TWO} -x NCCL_IB_TIMEOUT=60 {G1}", "variable-value"),
    (f"{TWO} -x NCCL_NET=tcp {G1}", "variable-value"),
    (f"{TWO} -x NCCL_NET=none {G1}", "variable-value"),
    (f"{TWO} -x NCCL_IB_DISABLE=true -x NCCL_SOCKET_IFNAME=eth0 {G1}", "setting-not-a-number"),
    (f"{TWO} -x NCCL_BUFFSIZE=8M {G1}", "setting-not-a-number"),
    (f"{TWO} -x NCCL_MAX_NCHANNELS=many {G1}", "setting-not-a-number"),
    (f"{TWO} -x NCCL_SOCKET_IFNAME=lo {G1}", "interface"),
    (f"{TWO} -x NCCL_SOCKET_IFNAME=docker0 {G1}", "interface"),
    (f"{TWO} -x NCCL_SOCKET_IFNAME=10.0.0.1 {G1}", "interface"),
    (f"{TWO} -x NCCL_SOCKET_IFNAME=mlx5_0 {G1}", "interface"),
    (f"{TWO} -x NCCL_IB_HCA=eth0 {G1}", "hca"),
    (f"{TWO} -x 'NCCL_IB_HCA=mlx5_0;mlx5_1' {G1}", "hca"),
    (f"{TWO} -x NCCL_DEBUG=INFO,NCCL_ALGO=Ring {G1}", "variables-joined"),
    (f"{TWO} -x NCCL_P2P_DISABLE=1 {G1}", "setting-left-over"),
    (f"{TWO} -x NCCL_IB_DISABLE=1 {G1}", "setting-left-over"),
    (f"{TWO} -x NCCL_NET=socket -x NCCL_IB_DISABLE=0 {G1}", "settings-contradict"),
    (f"{TWO} -x NCCL_NET=Socket -x NCCL_IB_TC=106 {G1}", "settings-contradict"),
    (f"{TWO} -x NCCL_SOCKET_NTHREADS=16 -x NCCL_NSOCKS_PERTHREAD=8 {G1}", "settings-contradict"),
    (f"{TWO} -x NCCL_ALGO=Tree broadcast_perf -b 8 -e 1G -f 2 -g 1", "no-algorithm"),
    (f"{TWO} -x NCCL_ALGO=NVLS -x NCCL_PROTO=LL {G1}", "no-algorithm"),
    (f"NCCL_ALGO=NVLSTree {G8}", "no-algorithm"),
    (f"NCCL_ALG=Ring {TWO} {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_IB_HACS=mlx5 {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_NCHANNELS=8 {G1}", "variable-unknown"),
    (f"{TWO} -x CUDA_VISBLE_DEVICES=0,1,2,3,4,5,6,7 {G1}", "variable-unknown"),
    (f"{TWO} -x LD_LIBARY_PATH=/lib {G1}", "variable-unknown"),
    (f"{TWO} -x NCCL_ALGO=Ring+Tree {G1}", "variable-value"),
    (f"{TWO} -x NCCL_ALGO=Ring:Tree {G1}", "variable-value"),
    (f"{TWO} -x NCCL_ALGO=NVLS_TREE {G1}", "variable-value"),
    (f"{TWO} -x NCCL_SOCKET_IFNAME=eth0:eth1 {G1}", "interface"),
    (f"{TWO} -x NCCL_SHM_DISABLE=1 {G1}", "setting-left-over"),
    (f"{TWO} -x NCCL_MIN_CTAS=32 -x NCCL_MAX_CTAS=8 {G1}", "settings-contradict"),
    # GPUs that a process sees.
    (f"CUDA_VISIBLE_DEVICES=0 mpirun -np 8 {G1}", "visible-devices"),
    (f"{TWO} -x CUDA_VISIBLE_DEVICES=0 {G1}", "visible-devices"),
    (f"CUDA_VISIBLE_DEVICES=0,1 {G8}", "visible-devices"),
    (f"{SRUN} --gpus-per-node=4 {G1}", "too-many-gpus"),
    (f"srun -N 2 --ntasks-per-node=1 --gpus-per-task=1 {G8}", "task-gpus"),
    (f"srun -N 2 --ntasks-per-node=1 --gpu-bind=single:1 {G8}", "task-gpus"),
    (f"srun -N 2 --gpus-per-node=8 {G1}", "idle-gpus"),
    (f"srun -N 2 -G 16 {G1}", "idle-gpus"),
    (f"srun -N 2 --gres=gpu:8 -n 2 {G1}", "idle-gpus"),
    # Options on the wrong side, misspelt, or of another launcher.
    (f"mpirun -H a:8,b:8 {G1} -np 16", "option-behind-program"),
    (f"mpirun -np 16 -H a:8,b:8 {G1} -x NCCL_DEBUG=INFO", "option-behind-program"),
    (f"mpirun -np 16 {G1} --hostfile hosts", "option-behind-program"),
    (f"{SRUN} --container-image a.sqsh {G1}", "image-path"),
    (f"mpirun -np 16 -H a:8,b:8 {G1} --allow-run-as-root", "option-behind-program"),
    (f"mpirun -np 16 -H a:8,b:8 {G1} --mca pml ob1", "option-behind-program"),
    (f"mpiexec.hydra -hosts a,b {G1} -n 16 -ppn 8", "option-behind-program"),
    (f"{TWO} --bind-too none {G1}", "option-unknown"),
    (f"{TWO} --allow-run-as-rot {G1}", "option-unknown"),
    (f"{TWO} --bind-to all {G1}", "option-value"),
    (f"{TWO} --map-by node:8 {G1}", "option-value"),
    (f"{TWO} --map-by ppr:8 {G1}", "option-value"),
    (f"{TWO} --map-by ppr:8:nodes {G1}", "option-value"),
    (f"{TWO} --mca btl=^openib {G1}", "mca-form"),
    (f"sudo {TWO} {G1}", "root-refused"),
    (f"docker run nccl-tests {G8}", "container-without-gpus"),
    (f"docker run --gpus all nccl-tests {G8}", "container-shm"),
    (f"docker run --gpus all --ipc=host img {TWO} {G1}", "container-network"),
    (f"docker run --gpus all -e NCCL_IB_HCA=mlx5 img {TWO} {G1}", "container-infiniband"),
    (f"mpirun {G8}", "no-number"),
    (f"{SRUN} --mpi=none {G1}", "mpi-type"),
    (f"{SRUN} --mpi=pmxi {G1}", "mpi-type"),
    (f"{SRUN} --export=NONE {G1}", "export-drops"),
    (f"{SRUN} --export=NCCL_DEBUG=INFO {G1}", "export-drops"),
    (f"{SRUN} --export=ALL,NCCL_IB_HCA=mlx5_0,mlx5_1 {G1}", "export-comma"),
    (f"{SRUN} mpirun -np 16 {G1}", "nested-launcher"),
    ("mpirun \u2013np 16 -H a:8,b:8 " + G1, "dash"),
    (f"mpirun -np -H a:8,b:8 {G1}", "option-without-value"),
    (f"mpirun -np 16 --hostfile {G1}", "option-without-value"),
    (f"mpiexec.hydra -n 16 -ppn 8 -hosts a,b -genv NCCL_DEBUG {G1}", "option-without-value"),
    (f"mpirun -np 16x -H a:8,b:8 {G1}", "option-value"),
    (f"mpirun -np 16 -H a:8, b:8 {G1}", "hosts-split"),
    (f"mpirun -np 16 -H a:8 ,b:8 {G1}", "hosts-split"),
    ("mpirun -np 4 -H a 1: 2, b 2: 2 -bind-to none python t.py", "hosts-split"),
    (f"{TWO} -x NCCL_IB_HCA=mlx5_0, mlx5_1 {G1}", "value-as-program"),
    (f"{TWO} -mca btl_tcp_if_exclude docker0 {G1}", "mca-loopback"),
    ("torchrun --nproc-per-node=2 --master_port -29500 t.py", "trainer-port"),
    ("torchrun --nproc-per-node=2 t.py --local_rank 0", "shared-gpus"),
    ("srun -n1 --ntasks-per-node=8 python t.py", "total-below-per-node"),
    (f"mpirun -np 16 -h a:8,b:8 {G1}", "asks-help"),
    (f"mpiexec.hydra -n 16 -h a:8,b:8 {G1}", "asks-help"),
    (f"mpirun -np 4 -x HSA_XNACK=1 -x NCCL_MIN_NCHANNELS=112 {G1}", "channels-limit"),
    ("torchrun --nproc-per-node=8 --nnodes=2 --node-rank=1 --master-addr=$(hostname -i) t.py",
     "torchrun-endpoint"),
    ("ssh b 'torchrun --nproc-per-node=8 --nnodes=2 --node-rank=1 --master-addr=$(hostname) t.py'",
     "torchrun-endpoint"),
    ("python3 -m sglang.launch_server --model-path m --tp 16 --nnodes 2 --node-rank 1"
     " --dist-init-addr $HOSTNAME:5000", "server-address"),
    (f"{TWO} -x NCCL_DEBUG = INFO {G1}", "value-as-program"),
    (f"{TWO} -x NCCL_IB_HCA= mlx5_0,mlx5_1 {G1}", "setting-cut"),
    (f"NCCL_TOPO_FILE= /opt/vm.xml {TWO} {G1}", "setting-cut"),
    (f"{TWO} -x NCCL_DEBUG= INFO {G1}", "setting-cut"),
    (f"{TWO} -x NCCL_SOCKET_IFNAME= eth0 {G1}", "setting-cut"),
    (f"mpirun -np 16 -N 16 -H a:8,b:8 {G1}", "too-few-slots"),
    (f"{G8} -np 8", "option-behind-program"),
    (f"{G8} -x NCCL_DEBUG=INFO", "option-behind-program"),
    (f"#SBATCH -ppn 8\nsrun -N 2 -n 16 {G1}", "option-unknown"),
    (f"export NCCL_ALG=Ring\n{SRUN} {G1}", "variable-unknown"),
    (f"sbatch -N 2 --gpus-per-node=8 --wrap='srun {G1}'", "idle-gpus"),
    # Arguments of the program.
    (f"{TWO} all_reduce -b 8 -e 1G -f 2 -g 1", "binary-unknown"),
    (f"{TWO} numactl -N 0 ./all_reduce -b 8 -e 1G -f 2 -g 1", "binary-unknown"),
    (f"{TWO} ./all_reduce_pref -b 8 -e 1G -f 2 -g 1", "binary-unknown"),
    (f"{TWO} all_reduce_perf -minbytes 8 -e 1G -f 2 -g 1", "argument-unknown"),
    (f"{TWO} allreduce_perf -b 8 -e 1G -f 2 -g 1", "binary-unknown"),
    (f"{TWO} ./build/all_reduce-perf -b 8 -e 1G -f 2 -g 1", "binary-unknown"),
    (f"{TWO} {G1} -d bf16", "argument-name"),
    (f"{TWO} {G1} -d float16", "argument-name"),
    (f"{TWO} {G1} -o average", "argument-name"),
    (f"{TWO} {G1} -n 0", "argument-range"),
    (f"{TWO} {G1} -R 3", "argument-range"),
    (f"{TWO} {RUN} -g 0", "argument-range"),
    (f"{TWO} {G1} -w 0", "no-warm-up"),
    (f"{TWO} {G1} -N 0", "endless"),
    (f"{TWO} {G1} -i 1048576", "step-ignored"),
    (f"{TWO} all_reduce_perf -b 8 -e 8G -f 1 -g 1", "factor-one"),
    (f"{TWO} all_reduce_perf -b 8 -e 8 G -f 2 -g 1", "argument-ignored"),
    (f"{TWO} {G1} 16", "argument-ignored"),
    (f"{TWO} all_reduce_perf -b -e 8G -f 2 -g 1", "argument-without-value"),
    (f"{TWO} {G1} -n", "argument-without-value"),
    (f"{TWO} {G1} --step-factor 2", "argument-unknown"),
    (f"{TWO} all_reduce_perf -b 8B -e 1G -f 2 -g 1", "size-unreadable"),
    (f"{TWO} broadcast_perf -b 8 -e 1G -f 2 -g 1 -r 16", "root"),
    (f"{TWO} {G1} -D 1", "device-needs-symmetric"),
    (f"{RUN} -g 16", "too-many-gpus"),
    (RUN, "one-rank"),
    # torchrun.
    ("#SBATCH --gres=gpu:8\ntorchrun --nproc-per-node=16 train.py", "too-many-gpus"),
    ("#SBATCH --gres=gpu:8\ntorchrun train.py", "torchrun-one-process"),
    ("torchrun --nproc-per-nodes=8 train.py", "option-unknown"),
    ("torchrun --nproc-per-node=8 --nnodes=2 train.py", "torchrun-endpoint"),
    ("torchrun --nproc-per-node=8 --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=localhost:29500"
     " train.py", "torchrun-endpoint"),
    ("torchrun --nproc-per-node=8 --nnodes=2 --rdzv-endpoint=a:29500 train.py",
     "torchrun-node-rank"),
    ("torchrun --nproc-per-node=8 --nnodes=2 --rdzv-backend=nccl --rdzv-endpoint=a:29500 t.py",
     "torchrun-backend"),
    ("torchrun --nproc-per-node=8 --nnodes=2 --node-rank=2 --master-addr=a train.py",
     "torchrun-node-rank"),
    ("torchrun --standalone --nproc-per-node=8 --nnodes=2 train.py", "torchrun-standalone"),
    ("torchrun --nproc-per-node=8 python train.py", "torchrun-python"),
    ("torchrun train.py --nproc-per-node=8", "option-behind-program"),
    (f"torchrun --nproc-per-node=8 {G1}", "torchrun-binary"),
    ("torchrun --nproc-per-node=4 --nnodes=1 --node-rank=3 train.py", "torchrun-node-rank"),
    ("python -m torch.distribute.launch --nproc_per_node=8 train.py", "module-unknown"),
    ("CMD='python t.py'\nsrun -N 2 --ntasks-per-node=8 bash -c '$CMD --rank $SLURM_PROCID'",
     "not-exported"),
    ("X=1\nsrun -N 2 --ntasks-per-node=8 bash -c 'read A < f; cd .; python ./t.py --read $X'",
     "not-exported"),
    (f"NCCL_DEBUG_SUBSYS=ALL,^CALL {G1}", "variable-value"),
    ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node=8 train.py", "visible-devices"),
    ("srun -N 2 --ntasks-per-node=8 torchrun --nnodes=2 --nproc-per-node=8 --rdzv-backend=c10d"
     " --rdzv-endpoint=a:1 t.py", "nested-launcher"),
]
# fmt: on


@pytest.mark.parametrize("text", RIGHT)
def test_right_commands_have_no_finding(text: str) -> None:
    judged = only(text)
    assert bad(judged) == set()
    assert judged.fixed is None


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_wrong_commands_are_found(text: str, expected: str) -> None:
    assert expected in bad(only(text))


@pytest.mark.parametrize("text", [text for text, _ in WRONG])
def test_every_fix_is_a_right_command(text: str) -> None:
    judged = only(text)
    if judged.fixed is None:
        # Only an edit elsewhere fixes these: a host that is not known, another launcher, a value,
        # another line of the script.
        assert "\n" in text or any(not held.finding.edits for held in judged.findings)
        return
    assert judged.fixed != text
    said = " ".join(held.finding.message for held in judged.findings)
    for name in re.findall(r"\b(?:NCCL|CUDA|UCX|FI|OMPI)_\w+", text):
        assert name in judged.fixed or name in said
    assert bad(only(judged.fixed)) == set()


@pytest.mark.parametrize("option", ["--kill-on-bad-exit=1", "--propagate=ALL", "--exclusive"])
def test_an_optional_value_stays_in_its_word(option: str) -> None:
    assert only(f"{SRUN} {G1} {option}").fixed == f"{SRUN} {option} {G1}"


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("srun -N abc --ntasks-per-node=8 all_reduce_perf -g 1", "option-value"),
        ("srun -N 0 --ntasks-per-node=8 all_reduce_perf -g 1", "option-value"),
        ("srun -N 3-2 --ntasks-per-node=8 all_reduce_perf -g 1", "option-value"),
        ("srun -N 2 -w a[5-1] --ntasks-per-node=8 all_reduce_perf -g 1", "host-list"),
        ("srun -N 2 -w a[1-²] --ntasks-per-node=8 all_reduce_perf -g 1", "host-list"),
        ("srun -N 2 -w a[1-2 --ntasks-per-node=8 all_reduce_perf -g 1", "host-list"),
        ("#SBATCH --nodes=abc\nsrun --ntasks-per-node=8 all_reduce_perf -g 1", "option-value"),
        ("srun -N 2 --ntasks-per-node=8 --gpus-per-node=8x all_reduce_perf", "option-value"),
        ("srun -N 2 --ntasks-per-node=8 -c all all_reduce_perf", "option-value"),
        ("srun -N ２ --ntasks-per-node=8 all_reduce_perf", "option-value"),
        ("mpirun -n 1_6 all_reduce_perf", "option-value"),
        (f"mpirun -n {DIGITS} all_reduce_perf", "option-value"),
        ("mpirun -n 8 -x CUDA_VISIBLE_DEVICES=0,² all_reduce_perf", "visible-devices"),
        ("mpirun -n 8 -x NCCL_ALGO=threads all_reduce_perf", "variable-value"),
        (f"mpirun -n 8 all_reduce_perf -r {DIGITS}", "root"),
        (f"mpirun -n 8 all_reduce_perf -b 8 -e 1G -f {DIGITS} -w {DIGITS}", None),
        (f"mpirun -n 8 all_reduce_perf -b {DIGITS} -e {DIGITS}G -f 2 -g {DIGITS}", None),
        (f"mpirun -n 8 -x NCCL_BUFFSIZE={DIGITS} -x NCCL_MIN_CTAS={DIGITS} all_reduce_perf", None),
        (f"mpirun --map-by ppr:{DIGITS}:node -n 8 all_reduce_perf", None),
        (f"srun -N 1 --gpus={DIGITS} --gpu-bind=single:{DIGITS} all_reduce_perf", None),
        (f"torchrun --nnodes={DIGITS} --node-rank={DIGITS} --nproc-per-node=8 train.py", None),
        (f"cat > h <<E\na slots=2\nE\ndeepspeed -H h -i a:{DIGITS} t.py", None),
        ("mpirun -np 16 -H a:eight,b:8 all_reduce_perf", "host-list"),
        ("mpirun -np 16 -H a:8:8,b:8 all_reduce_perf", "host-list"),
        ("mpiexec.hydra -n 16 -hosts a:8,b:x all_reduce_perf", "host-list"),
        ("mpirun -np 16 --map-by ppr:²:node -H a:8,b:8 all_reduce_perf", "option-value"),
        ("mpirun -npersocket four -H a:8,b:8 all_reduce_perf", "option-value"),
        ("torchrun --nnodes=² --nproc-per-node=8 --rdzv-endpoint=a:1 t.py", "option-value"),
        ("torchrun --nnodes=two --nproc-per-node=8 t.py", "option-value"),
        ("torchrun --nnodes=1:x --nproc-per-node=8 t.py", "option-value"),
        ("torchrun --nnodes=1 --nproc-per-node=8x t.py", "torchrun-processes"),
    ],
)
def test_numbers_that_are_none_are_found(text: str, expected: str | None) -> None:
    judged = only(text)
    if expected is not None:
        assert judged.is_wrong
        assert expected in {held.finding.id for held in judged.findings}
    if expected not in (None, "root", "visible-devices", "variable-value") and text[0] != "s":
        assert all(prediction.placement is None for prediction, _ in judged.predictions)


def test_a_pair_of_variables_is_blamed_as_a_pair() -> None:
    def blamed(algorithms: str, protocols: str) -> str:
        text = f"mpirun -n 8 -x NCCL_ALGO={algorithms} -x NCCL_PROTO={protocols}"
        (found,) = from_text(f"{text} reduce_scatter_perf", LaunchContext(nodes=1))
        (held,) = check(found.line, found.site).findings
        assert held.finding.id == "no-algorithm"
        return held.finding.message

    assert "NCCL_ALGO=Tree,CollnetDirect with NCCL_PROTO=LL128" in blamed(
        "Tree,CollnetDirect", "LL128"
    )
    assert blamed("Tree", "LL128").startswith("NCCL_ALGO=Tree leaves")


def test_nothing_is_ok_where_the_placement_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "mpirun -np $NP -H a:8,b:8 all_reduce_perf -b 8 -e 1G -f 2"]) == 0
    shown = capsys.readouterr().out
    assert "ok" not in shown.split()
    assert "where processes run was not checked" in shown
