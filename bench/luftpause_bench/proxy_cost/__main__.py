"""`python -m luftpause_bench.proxy_cost`"""

import sys

from luftpause_bench.proxy_cost.run import main

sys.exit(main())
