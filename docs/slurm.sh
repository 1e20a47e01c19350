#!/bin/bash
#SBATCH --job-name=bacon
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue

# One torchrun per machine; it starts one process per GPU. The words after the script's name are
# those of the `bacon` command:
#   sbatch docs/slurm.sh train --dataset cifar100-lt --method bacon-s -o /shared/runs/s0
set -euo pipefail

first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
# Images, tokens and runs must be seen by all machines.
export BACON_CACHE="${BACON_CACHE:-$HOME/.cache/bacon_gcd}"
# A new store for every restart: machines do not count restarts alike.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / 8))

srun torchrun \
  --nnodes "$SLURM_NNODES" \
  --nproc-per-node 8 \
  --max-restarts 3 \
  --rdzv-id "$SLURM_JOB_ID" \
  --rdzv-backend c10d \
  --rdzv-endpoint "$first:29500" \
  -m bacon_gcd "$@"
