# SPDX-License-Identifier: Apache-2.0
def error(fn, device):
    try:
        fn(device)
    except Exception as e:
        return type(e)

x = torch.randn(3, 5)
for fn in (
    lambda d: torch.softmax(torch.arange(4).to(d), 0),
    lambda d: torch.softmax(x.to(d), 2),
    lambda d: F.layer_norm(x.to(d), [4]),
    lambda d: F.conv2d(torch.randn(1, 3, 5, 5).to(d), torch.randn(2, 4, 3, 3).to(d)),
    lambda d: F.conv2d(torch.randn(1, 3, 2, 2).to(d), torch.randn(2, 3, 3, 3).to(d)),
    lambda d: F.nll_loss(x.to(d), torch.zeros(4, dtype=torch.long).to(d)),
    lambda d: F.huber_loss(x.to(d), x.to(d), delta=-1),
    lambda d: F.multi_margin_loss(x.to(d), torch.zeros(3).to(d)),
    lambda d: F.binary_cross_entropy(x.to(d), x.sigmoid().to(d)),
    lambda d: F.binary_cross_entropy(x.sigmoid().to(d), x.to(d), reduction="none"),
    lambda d: F.binary_cross_entropy(x.sigmoid().to(d), (x / 0).to(d)),
    lambda d: F.soft_margin_loss(torch.ones(2).long().to(d), torch.ones(2).long().to(d)),
    lambda d: F.rms_norm(x.to(d), [4]),
    lambda d: F.rms_norm(x.to(d), [5], torch.ones(4).to(d)),
    lambda d: F.glu(x.to(d)),
    lambda d: F.glu(x.to(d), 2),
    lambda d: torch.complex(x.to(d), x.double().to(d)),
    lambda d: torch.complex(x.to(d), torch.arange(5).to(d)),
    lambda d: torch.polar(x.half().to(d), x.half().to(d)),
    lambda d: torch.complex(x.to(d), x.to(d), out=x.clone().to(d)),
):
    assert error(fn, "cpu") is not None and error(fn, "npu") is error(fn, "cpu"), fn
