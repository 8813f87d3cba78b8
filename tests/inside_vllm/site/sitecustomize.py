"""Lets a torchvision that was built for CUDA be imported beside a torch for CPUs.

Its compiled operators do not load there, and it looks up two of them when it is imported; they are
declared just before. Python runs this file at its start, so it reaches vLLM's own processes too.
"""

import sys


class _Declaring:
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(
                    f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
                )
            sys._torchvision_operators = library  # alive as long as the process


sys.meta_path.insert(0, _Declaring())
