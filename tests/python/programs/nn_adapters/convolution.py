# SPDX-License-Identifier: Apache-2.0
for dtype in DTYPES:
    r = data(dtype)
    loose = 6e-2 if dtype in (torch.bfloat16, torch.float16) else None
    for x in (r(3, 4, 5, 6), r(3, 4, 5, 6).to(memory_format=torch.channels_last)):
        for stride, padding, dilation in ((2, 1, 1), (1, 0, 2)):
            same(lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, 2),
                 x, r(6, 2, 3, 3), r(6), tolerance=loose)
            same(lambda x, w: F.conv_transpose2d(x, w, None, stride, padding, 0, 1, dilation),
                 x, r(4, 3, 3, 3), tolerance=loose)
    same(lambda x, w, b: F.conv1d(x, w, b, padding=1), r(2, 4, 7), r(5, 4, 3), r(5), tolerance=loose)
    same(lambda x, w: F.conv3d(x, w, padding=1), r(2, 4, 5, 4, 3), r(5, 4, 3, 3, 3),
         tolerance=loose or 1e-4)
ran("convolution_overrideable", "convolution_backward_overrideable")
