"""Trains on a tree of images, or would: the example of docs/python.md, which a test runs."""

import sys

import onesweep
import onesweep.torch
import torch
from torch.utils.data import DataLoader


def decode(f: onesweep.File[str]) -> tuple[torch.Tensor, int]:
    pixels = torch.frombuffer(bytearray(f.data[:256]), dtype=torch.uint8)
    return pixels, int("/cat/" in f.path)


def main(path: str, epochs: int, workers: int) -> None:
    tree = onesweep.torch.Tree(path, decode, shuffle="64M", seed=7, exclude=["*.txt"])
    loader = DataLoader(tree, batch_size=32, num_workers=workers)
    for epoch in range(epochs):
        tree.set_epoch(epoch)
        images = cats = 0
        for pixels, is_cat in loader:
            images += len(pixels)
            cats += int(is_cat.sum())
        print(f"epoch {epoch}: {images} images, {cats} of cats")


if __name__ == "__main__":
    main(sys.argv[1], epochs=2, workers=2)
