"""Lets PyPI's torchvision be imported beside the CPU build of torch, where the file that declares its operators does
not load. vLLM imports it for some models and calls neither operator. Put into an environment with a `.pth` file."""

import sys
from importlib.abc import MetaPathFinder


class DeclareOperators(MetaPathFinder):
    """Finds nothing; declares the operators when torchvision is first looked for, so that Python starts quickly."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declared.append(library)


_declared: list[object] = []
"""What is declared lasts as long as its library."""
sys.meta_path.insert(0, DeclareOperators())
