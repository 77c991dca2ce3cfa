# SPDX-License-Identifier: BSD-3-Clause
"""usage: other_programs.py accelerate|fsdp2|lightning|trainer|generate|deepspeed [BACKEND [ZERO_STAGE]]
Small programs of accelerate (DDP, FSDP2), Lightning, transformers (Trainer, tensor-parallel generate) and DeepSpeed, on
GPUs or CPUs, as their users write them: none knows of tutti. Each says what came of it; other_programs_test.py compares
that between backends."""

import os
import sys
import tempfile
from typing import List, Optional

import torch
import torch.distributed as dist

KIND = "cuda" if torch.cuda.is_available() else "cpu"


def whole(parameter: torch.Tensor) -> torch.Tensor:
    return (parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter).detach()


def say(parameters: List[torch.Tensor]) -> None:
    total = sum(whole(parameter).double().sum() for parameter in parameters)
    name = dist.group.WORLD._get_backend(torch.device(KIND)).name()
    sys.stdout.write(f"said {dist.get_backend()} {name} {float(total).hex()}\n")
    sys.stdout.flush()


def accelerated(**options) -> None:
    """accelerate's loop of its first page."""
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    set_seed(1)
    accelerator = Accelerator(cpu=KIND == "cpu", **options)
    data = torch.utils.data.TensorDataset(torch.randn(64, 16), torch.randn(64, 4))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for inputs, wanted in loader:
        loss = torch.nn.functional.mse_loss(model(inputs), wanted)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    losses = accelerator.gather(loss.detach().reshape(1))
    assert len(losses) == dist.get_world_size(), losses
    say([*model.parameters(), losses])
    accelerator.end_training()


def accelerate(_: Optional[str]) -> None:
    accelerated()


def fsdp2(_: Optional[str]) -> None:
    from accelerate import FullyShardedDataParallelPlugin

    accelerated(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap"))


def lightning(backend: Optional[str]) -> None:
    try:
        from lightning import pytorch as pl
        from lightning.pytorch.demos.boring_classes import BoringModel
    except ImportError:
        import pytorch_lightning as pl
        from pytorch_lightning.demos.boring_classes import BoringModel

    class Model(BoringModel):
        def on_train_end(self) -> None:
            say(list(self.parameters()))

    pl.seed_everything(1, verbose=False)
    strategy = pl.strategies.DDPStrategy(process_group_backend=backend) if backend else "ddp"
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer = pl.Trainer(accelerator=KIND, devices=2, strategy=strategy, max_steps=4, limit_val_batches=2, **quiet)
    trainer.fit(Model())


def trainer(_: Optional[str]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

    def sample(i: int) -> dict:
        tokens = torch.randint(0, 64, (16,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": tokens, "labels": tokens}

    set_seed(1)
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2)  # fmt: skip
    model = LlamaForCausalLM(config)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, use_cpu=KIND == "cpu", max_steps=3, report_to=[],
                                      per_device_train_batch_size=4, save_strategy="no", disable_tqdm=True)  # fmt: skip
        Trainer(model=model, args=arguments, train_dataset=[sample(i) for i in range(32)]).train()
    say(list(model.parameters()))


def device() -> torch.device:
    return torch.device(KIND, int(os.environ["LOCAL_RANK"])) if KIND == "cuda" else torch.device(KIND)


def generate(_: Optional[str]) -> None:
    """The tokens of one process, by the plan that transformers has for the model."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed

    set_seed(1)
    config = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, initializer_range=0.1, bos_token_id=None,
                         eos_token_id=None, pad_token_id=0)  # fmt: skip
    prompt = torch.randint(1, 128, (1, 8)).to(device())

    def tokens_of(model) -> torch.Tensor:
        model.generation_config.eos_token_id = None
        return model.generate(prompt, max_new_tokens=12, do_sample=False)

    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(config).save_pretrained(folder)
        want = tokens_of(AutoModelForCausalLM.from_pretrained(folder).to(prompt.device))
        got = tokens_of(AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto"))
    assert torch.equal(got, want), (got, want)
    say([got])
    dist.destroy_process_group()


def deepspeed(backend: Optional[str], stage: str = "2") -> None:
    import deepspeed as ds

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    ds.init_distributed(dist_backend=backend)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
        "zero_optimization": {"stage": int(stage)},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = ds.initialize(model=model, model_parameters=model.parameters(), config=config)
    for step in range(3):
        seed = torch.Generator().manual_seed(10 * step + dist.get_rank())
        loss = engine(torch.randn(4, 16, generator=seed)).square().mean()
        engine.backward(loss)
        engine.step()
    parameters = list(model.parameters())
    with ds.zero.GatheredParameters(parameters):
        say(parameters)
    dist.destroy_process_group()


if __name__ == "__main__":
    programs = (accelerate, fsdp2, lightning, trainer, generate, deepspeed)
    program = {program.__name__: program for program in programs}[sys.argv[1]]
    program(sys.argv[2] if len(sys.argv) > 2 else None, *sys.argv[3:])
