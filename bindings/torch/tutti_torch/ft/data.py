# SPDX-License-Identifier: BSD-3-Clause
"""Which samples are whose, when groups come and go."""

from __future__ import annotations

from typing import Any, Optional

import torch.distributed as dist
from torch.utils import data


class DistributedSampler(data.distributed.DistributedSampler):
    """Each rank of each of `num_replica_groups` groups, the most that there will be, has a part of its own. Samples of
    a group that is not there are not used until it is; a step that does not count uses up its samples."""

    def __init__(
        self,
        dataset: data.Dataset,
        replica_rank: int,
        num_replica_groups: int,
        group_rank: Optional[int] = None,
        num_replicas: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        """replica_rank: the number of this group; group_rank and num_replicas: this rank in it, and its size."""
        rank = dist.get_rank() if group_rank is None else group_rank
        size = dist.get_world_size() if num_replicas is None else num_replicas
        if not 0 <= replica_rank < num_replica_groups:
            raise ValueError(f"replica_rank is {replica_rank}, of {num_replica_groups} groups")
        self.global_rank = rank + size * replica_rank
        self.global_world_size = size * num_replica_groups
        super().__init__(dataset, rank=self.global_rank, num_replicas=self.global_world_size, **kwargs)
