"""What paths do not tell must survive from one torch.save file to another."""
import collections

import torch

from tool import milepost


def trained():
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_optimizer_state_keeps_its_whole_number_keys(tmp_path):
    model, optimizer = trained()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "empty": {}}, tmp_path / "a.pth")
    milepost("convert", tmp_path / "a.pth", tmp_path / "b.pth", "--to", "torch")
    again = torch.load(tmp_path / "b.pth", weights_only=True)
    assert set(again["optimizer"]["state"]) == {0, 1}
    assert isinstance(again["model"], collections.OrderedDict) and again["empty"] == {}
    fresh = torch.optim.AdamW(model.parameters())
    fresh.load_state_dict(again["optimizer"])
    for index, state in optimizer.state_dict()["state"].items():
        for name, value in state.items():
            assert torch.equal(fresh.state_dict()["state"][index][name], value)
