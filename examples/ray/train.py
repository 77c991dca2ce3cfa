# SPDX-License-Identifier: BSD-3-Clause
"""PyTorch in Ray Train over tutti: python3 train.py [WORKERS]

Ray Train starts the workers and says who and where they are; TorchConfig names the backend. On several nodes hosts want
the job's secret, which all workers get by the environment: here it is made for the job."""

import os
import secrets
import sys

import ray
import ray.train
import torch
import torch.distributed as dist
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model


def train():
    torch.manual_seed(0)
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(ray.train.get_context().get_world_rank())
    for _ in range(200):
        x = torch.randn(64, 4, generator=generator)
        loss = torch.nn.functional.mse_loss(model(x), x.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert dist.get_backend() == "tutti" and loss.item() < 1e-6
    if dist.get_rank() == 0:
        print(f"{dist.get_world_size()} workers over {dist.get_backend()}: the loss is {loss.item():.1e}")


def main():
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    ray.init(runtime_env={"env_vars": {"TUTTI_SECRET": os.environ.get("TUTTI_SECRET") or secrets.token_hex(32)}})
    trainer = TorchTrainer(train, torch_config=TorchConfig(backend="tutti"),
                           scaling_config=ray.train.ScalingConfig(num_workers=workers,
                                                                  resources_per_worker={"CPU": 0.5}))
    trainer.fit()  # raises what a worker raised


if __name__ == "__main__":
    main()
