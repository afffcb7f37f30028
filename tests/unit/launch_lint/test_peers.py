# SPDX-License-Identifier: Apache-2.0
"""Check what `lint` says of scripts that choose NICs by rank."""

import pytest

from nccltune.launch_lint.peers import nics_by_rank

_CASE = """APP="$@"
let place=$OMPI_COMM_WORLD_LOCAL_RANK%4
case ${place} in
[0])
  export NCCL_IB_HCA=mlx5_4:1
  numactl -N 0 $APP ;;
[1])
  export NCCL_IB_HCA=mlx5_5:1
  numactl -N 1 $APP ;;
esac
"""


@pytest.mark.parametrize(
    "text",
    [
        _CASE,
        "export NCCL_IB_HCA=mlx5_$OMPI_COMM_WORLD_LOCAL_RANK\nexec $@\n",
        "srun bash -c 'export NCCL_IB_HCA=mlx5_${SLURM_LOCALID}:1; python train.py'\n",
        "NICS=(mlx5_0 mlx5_1)\nexport NCCL_IB_HCA=${NICS[$SLURM_LOCALID]}\nexec $@\n",
        "lr=$SLURM_LOCALID\nif [ $lr -eq 0 ]; then\n  export NCCL_IB_HCA=mlx5_0\n"
        "elif [ $lr -eq 1 ]; then\n  export NCCL_IB_HCA=mlx5_1\nfi\n",
    ],
)
def test_a_nic_by_the_place_on_the_node_is_found(text: str) -> None:
    assert [one.id for one in nics_by_rank(text)] == ["hca-by-rank"]


@pytest.mark.parametrize(
    "text",
    [
        "# export NCCL_IB_HCA=mlx5_$SLURM_LOCALID\nexport NCCL_IB_HCA=$NICS\n",
        "export UCX_NET_DEVICES=mlx5_$SLURM_LOCALID:1\nexport NCCL_IB_HCA=mlx5_0,mlx5_1\n",
        "for nic in mlx5_0 mlx5_1; do mpirun -x NCCL_IB_HCA=$nic ./a; done\n",
        'if [ "$(hostname)" = n1 ]; then export NCCL_IB_HCA=mlx5_0; else\n'
        "export NCCL_IB_HCA=mlx5_2; fi\nexport LOCAL_RANK=$SLURM_LOCALID\n",
        "case $SLURM_JOB_PARTITION in\na) export NCCL_IB_HCA=mlx5_0 ;;\n"
        "b) export NCCL_IB_HCA=mlx5_4 ;;\nesac\nlocal_rank=$SLURM_LOCALID\n",
        "if [ $LOCAL_RANK = 0 ]; then\n  export NCCL_IB_HCA=mlx5_0\nfi\n",
        "case $SLURM_LOCALID in 0) A=1 ;; esac\n",
        'HCA=$(cat /etc/hca); echo "rank $SLURM_LOCALID"\nexport NCCL_IB_HCA=$HCA\n',
        "export HCA=mlx5 CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\nexport NCCL_IB_HCA=$HCA\n",
        'if [ "$LOCAL_RANK" = 0 ]; then echo start; fi\nif [ "$CLUSTER" = a ]; then\n'
        "export NCCL_IB_HCA=mlx5_0\nelse\nexport NCCL_IB_HCA=mlx5_2\nfi\n",
        'case "$SLURM_LOCALID" in 0) echo first;; esac\n'
        "[ -d /a ] && export NCCL_IB_HCA=mlx5_0\n[ -d /b ] && export NCCL_IB_HCA=mlx5_1\n",
        "OUT=/out/$SLURM_LOCALID\nexport NCCL_IB_HCA=${OUT:+mlx5}\n",
    ],
)
def test_a_nic_that_is_chosen_otherwise_is_not(text: str) -> None:
    assert not list(nics_by_rank(text))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", [" " * 100_000, "case $LOCAL_RANK in\n" * 20_000, "a=$((" * 20_000]
)
def test_long_texts_take_seconds(text: str) -> None:
    assert not list(nics_by_rank(f"{text}\nNCCL_IB_HCA=mlx5_0"))
