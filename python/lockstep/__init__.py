"""Lockstep from Python: trains with the native program, and reads what it writes. Needs no other package.

    import lockstep
    run = lockstep.train("first", steps=50)       # a recipe file, or one of the package
    print(run.metrics().tail())
    print(run.generate("this dog"))

    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    run = lockstep.train(model=net, data=(images, digits), steps=200, nproc=2)
    net.load_state_dict(run.state_dict())

Keys are the recipe's: steps=50 is run.steps (a last part that only one section has), optim__lr=1e-3 is optim.lr, and
overrides={"optim.lr": 1e-3} takes any of them. What the program refuses is a LockstepError with its sentence.
"""
from ._module import ExportError, export_module
from ._program import DataError, LockstepError, Preempted, RecipeError, program, recipes, version
from ._run import Metrics, Picture, Run
from ._tokenizer import Tokenizer, tokenizer
from ._train import plan, train

__all__ = ["DataError", "ExportError", "LockstepError", "Metrics", "Picture", "Preempted", "RecipeError", "Run", "Tokenizer",
           "export_module", "plan", "program", "recipes", "tokenizer", "train", "version"]
